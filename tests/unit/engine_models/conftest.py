"""Keeps transformers' progress bars out of the output."""

from __future__ import annotations

import pytest
from transformers.utils import logging


@pytest.fixture(autouse=True, scope="session")
def _no_progress_bars() -> None:
    logging.disable_progress_bar()
