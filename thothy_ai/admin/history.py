"""History by month: lists the months, and deletes old months as a whole.

A job's id begins with its time of creation, and its attempts, artifacts and events are in the partitions of that
month. A month is deleted when all of its jobs ended before a given moment: first its jobs in batches, then its
partitions. `usage_by_hour` stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from thothy_ai.db.statements import statement
from thothy_ai.queue.books import close_hours

BATCH = 5000  # jobs per transaction
PARENTS = ("attempt", "artifact", "job_event")
LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '5s'")  # a longer wait of a DROP would hold up every worker


@dataclass(frozen=True, slots=True)
class Month:
    name: str  # such as 2026_01
    jobs: int
    kept: int  # jobs that are open or ended too late, because of which the month stays
    size: int  # bytes in its partitions

    def deleted_from(self, keep_days: int) -> str:
        """The first day on which the reaper may delete the month, or `never` if it keeps all months (0 days)."""
        if not keep_days:
            return "never"
        year, number = map(int, self.name.split("_"))
        end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
        return (end + timedelta(days=keep_days)).date().isoformat()


def months(engine: Engine, before: datetime) -> list[Month]:
    """The months that ended before `before`, the oldest first."""
    with engine.connect() as connection:
        return [Month(*row) for row in connection.execute(statement("queue/history_months"), {"before": before})]


def prune(engine: Engine, before: datetime) -> list[Month]:
    """Delete the months whose jobs all ended before `before`, and return them. Idempotency keys can be used again.

    If a job of a month runs again meanwhile, the month keeps its partitions; its other jobs are deleted now, and their
    history later. The next call completes an interrupted one. Raises `DatabaseError` if a table stays locked for 5 s.
    """
    close_hours(engine)  # so that the usage is kept
    over = [month for month in months(engine, before) if not month.kept]
    for month in over:
        wanted = {"month": month.name, "before": before, "limit": BATCH}
        deleted = BATCH
        while deleted == BATCH:
            with engine.begin() as connection:
                deleted = connection.execute(statement("queue/history_delete"), wanted).rowcount
    left = {month.name for month in months(engine, before) if month.jobs}
    gone = [month for month in over if month.name not in left]
    for month in gone:
        for parent in PARENTS:
            with engine.begin() as connection:
                connection.execute(LOCK_TIMEOUT)
                connection.execute(text(f"DROP TABLE IF EXISTS {parent}_{month.name}"))
    return gone
