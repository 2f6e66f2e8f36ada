"""The moments that a job can name: those that every time zone can show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
RANGE: Final = f"from {EARLIEST.year} to {LATEST.year - 1}"


def nameable(moment: datetime) -> bool:
    """Whether a job can name this moment."""
    return EARLIEST <= moment < LATEST
