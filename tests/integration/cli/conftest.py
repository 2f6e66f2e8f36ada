"""Fixtures of the commands' tests."""

from __future__ import annotations

import pytest

from tests.support.command_line import Run, type_command
from thothy_ai.settings import Settings


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `thothy` in this process, with this test's settings."""
    monkeypatch.setenv("THOTHY_HOME", str(settings.home))
    monkeypatch.setenv("THOTHY_DATABASE_URL", settings.require_database_url())
    monkeypatch.setenv("THOTHY_REDIS_URL", settings.require_redis_url())
    return type_command
