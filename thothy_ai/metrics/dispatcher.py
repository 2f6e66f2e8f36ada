"""What the dispatcher shows: the queue in Postgres by state, and its list in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Gauge

OPEN_STATES = ("queued", "dispatched", "running")

DISPATCHED = Counter("thothy_dispatched", "Jobs that were published to Redis.")
DEPTH = Gauge("thothy_queue_depth", "Open jobs, by state.", ["state"])
OLDEST_AGE = Gauge("thothy_queue_oldest_age_seconds", "How long the oldest waiting job has been allowed to run.")
LIST_LENGTH = Gauge("thothy_redis_list_length", "Hints that wait in Redis.")


def show(rows: Sequence[Any]) -> None:
    """Show what the statement `operate_queue` says of this moment."""
    counts = {row.state: row for row in rows}
    for state in OPEN_STATES:
        DEPTH.labels(state).set(counts[state].jobs if state in counts else 0)
    ages = [counts[state].due_age or 0.0 for state in ("queued", "dispatched") if state in counts]
    OLDEST_AGE.set(max(ages, default=0.0))
