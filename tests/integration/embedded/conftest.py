"""Fixtures of the embedded stack's tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that `nobody` can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="thothy-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
