"""Fixtures of the embedded stack's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_folder import server_folder


@pytest.fixture
def home() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder
