"""Fixtures of the commands' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.support.command_line import Run, type_command
from thothy_ai.db.connect import make_engine
from thothy_ai.settings import Settings


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = make_engine(settings)
    yield engine
    engine.dispose()


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `thothy` in this process, with this test's settings."""
    monkeypatch.setenv("THOTHY_HOME", str(settings.home))
    monkeypatch.setenv("THOTHY_DATABASE_URL", settings.require_database_url())
    monkeypatch.setenv("THOTHY_REDIS_URL", settings.require_redis_url())
    return type_command
