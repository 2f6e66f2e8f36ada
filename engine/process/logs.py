"""The log of an engine's processes: standard error, one line per record."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Log from INFO on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
