"""The log of an engine's processes: standard error, one line per record."""

from __future__ import annotations

import logging


def log_to_stderr(level: str = "INFO") -> None:
    """Log from this level on. A second call changes the level."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger().setLevel(level)
