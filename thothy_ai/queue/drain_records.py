"""`DrainRecords`: records each period in which the queue was not empty, once it has ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from thothy_ai.db.statements import statement

MAX_DRAIN = timedelta(days=1)  # a queue that is never empty is recorded in parts
ABSENCE_SECONDS = 15 * 60.0  # within this time, a silent engine may return


class DrainRecords:
    """Remembers when nothing could last run: no recorded drain begins earlier."""

    def __init__(self) -> None:
        self._empty_at: datetime | None = None

    def record(self, connection: Connection, gap_seconds: float) -> list[Any]:
        """Record and return ended drains: none while jobs are open or may follow within `gap_seconds`.

        A job whose model no engine serves is not open. The drain in which it runs begins when it is first tried. Every
        other job is open from when its transaction is committed.
        """
        known = {"empty_at": self._empty_at, "absence_seconds": ABSENCE_SECONDS}
        state = connection.execute(statement("queue/drain_state"), known).one()
        if state.is_open:
            is_over = state.first_finish is not None and state.now - state.first_finish > MAX_DRAIN
        else:
            is_over = state.last_finish is None or state.now - state.last_finish > timedelta(seconds=gap_seconds)
        if state.is_unsettled or not is_over:
            return []
        drains: list[Any] = []
        if state.first_finish is not None:
            wanted = {"since": state.since, "was_empty": state.was_empty, "gap_seconds": gap_seconds}
            wanted |= {"emptied": not state.is_open, "absence_seconds": ABSENCE_SECONDS}
            drains = list(connection.execute(statement("queue/record_drains"), wanted))
        if not drains and not state.is_open:
            self._empty_at = state.now
        return drains
