"""What tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.margins import Margins


@pytest.fixture(scope="session", autouse=True)
def _quickly(quick_interpreter: None) -> None:
    """Every test here runs kernels."""


@pytest.fixture
def margins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Margins]:
    """Checked when the test ends."""
    margins = Margins()
    margins.watch(monkeypatch)
    yield margins
    margins.check()
