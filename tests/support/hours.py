"""Tests that count hours, or months, which end with an hour."""

from __future__ import annotations

import time

HOUR = 3600.0
MARGIN = 30.0  # seconds that a test may take, on a busy machine


def wait_out_the_hour() -> None:
    """If this hour ends within `MARGIN`, until the next one has begun: Postgres' clock cannot be set."""
    left = HOUR - time.time() % HOUR
    if left < MARGIN:
        time.sleep(left)
