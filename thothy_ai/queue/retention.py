"""`Retention`: deletes old months of history, a little per round, and texts without requests.

A whole month is deleted when it and its last job ended more than `keep_history_days` ago: its jobs with their requests
in batches, then the partitions of its attempts, artifacts and events. `usage_by_hour` and `engine_session` stay, since
bills are made from them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from thothy_ai.errors import DatabaseError
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

BATCH: Final = 1000  # jobs or texts deleted per round, so that leases do not wait long
LOOK_BATCH: Final = 20_000  # jobs checked per round
LOOK_SECONDS: Final = 3600.0  # between two looks for months that are over
TEXTS_SECONDS: Final = 60.0  # between two batches of texts
LOCK_WAIT: Final = "300ms"  # workers can wait this long behind the drop of a partition
FIRST: Final = "00000000-0000-0000-0000-000000000000"
EXPECTED: Final = {"55P03", "23503"}  # a lock was not available; a text has just been referred to again
Ask = Callable[..., Sequence[Any]]


class Interval:
    """Says when `seconds` have passed since it last said so; at once the first time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = float("-inf")

    def due(self) -> bool:
        """Whether the interval is over; if so, it begins again."""
        if time.monotonic() - self._last < self._seconds:
            return False
        self._last = time.monotonic()
        return True


class Retention:
    """Owns the months to check or delete, and the progress of the searches for jobs and unused texts."""

    def __init__(self, settings: Settings, ask: Ask) -> None:
        self._keep = timedelta(days=settings.keep_history_days)
        self._ask = ask
        self._months: list[str] = []  # the first of them is being looked at, or deleted
        self._seen: str | None = FIRST  # last checked id of its jobs; None: all
        self._look, self._texts = Interval(LOOK_SECONDS), Interval(TEXTS_SECONDS)
        self._after = FIRST

    def step(self) -> None:
        """Check or delete one batch of jobs, and delete one of texts. Locked rows are tried again later."""
        before = datetime.now(UTC) - self._keep
        try:
            if self._texts.due():
                [row] = self._ask("queue/drop_texts", after=self._after, limit=BATCH)
                self._after = row.last or FIRST
            if self._keep and not self._months and self._look.due():
                self._months = [row.name for row in self._ask("queue/past_months", before=before)]
                self._ask("queue/drop_interactive", before=before, limit=LOOK_BATCH)
                self._seen = FIRST
            if self._months and self._seen is not None:
                # Go on to the next month once a job keeps this one, and delete it once none does.
                wanted = {"month": self._months[0], "before": before, "after": self._seen, "limit": LOOK_BATCH}
                [row] = self._ask("queue/month_kept", **wanted)
                if row.kept:
                    self._leave(self._months[0])
                else:
                    self._seen = row.last if row.jobs == LOOK_BATCH else None
            if self._months and self._seen is None:
                month = self._months[0]
                if len(self._ask("queue/history_delete", month=month, before=before, limit=BATCH)) < BATCH:
                    # The last batch: the partitions go, unless a job of that month runs again.
                    [row] = self._ask("queue/drop_month", month=month, lock_wait=LOCK_WAIT)
                    self._leave(month)
                    if row.dropped:
                        name, days = month.replace("_", "-"), self._keep.days
                        logger.warning("history of %s is deleted: older than %d days", name, days)
        except DatabaseError as error:
            if error.sqlstate not in EXPECTED:
                raise
            logger.info("retention: continues later: %s", error)

    def _leave(self, month: str) -> None:
        self._months.remove(month)
        self._seen = FIRST
