"""History by month: listing the months, and deleting old months as a whole.

A job's id begins with its time of creation, and its attempts, artifacts and events are in the partitions of that
month. A month is deleted when all of its jobs ended before a given moment: its jobs in batches, then its partitions.
`usage_by_hour` stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from thothy_ai.db.statements import statement
from thothy_ai.queue.books import close_hours

BATCH = 5000  # jobs per transaction
PARENTS = ("attempt", "artifact", "job_event")
LOCK_TIMEOUT = text("SET LOCAL lock_timeout = '5s'")  # a DROP that waited longer would hold up every worker


@dataclass(frozen=True, slots=True)
class Month:
    name: str  # 2026_01
    jobs: int
    kept: int  # jobs that are open or ended too late; the month stays while there are any
    size: int  # bytes of its partitions

    def deleted_from(self, keep_days: int) -> str:
        """The first day on which the reaper may delete it, `never` if it keeps all months (0 days)."""
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
    """Delete the months whose jobs all ended before `before`, and return them. Their idempotency keys become free.

    A month with a job that ran again meanwhile keeps its partitions: its other jobs are deleted now, their history
    later. An interrupted call is completed by the next one. Raises `DatabaseError` when a table stays locked for 5 s.
    """
    close_hours(engine)  # their usage is kept
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
