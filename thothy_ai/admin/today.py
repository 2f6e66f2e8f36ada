"""`DayFigures`: the yields of today's jobs, the late jobs, and the ends by kind, for the console and its alarms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row

from thothy_ai.admin.processes import Connected, connected
from thothy_ai.admin.report.yields import Yields
from thothy_ai.admin.top.queue import Paced
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.settings import PublishingTime, Settings

SHOWN_LATE = 5  # jobs
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class LateJob:
    """An open job, and the time by which it should have ended."""

    id: UUID
    kind: str
    state: str
    due: datetime


@dataclass(frozen=True, slots=True)
class DayYields(Yields):
    """The yields of jobs that ended since midnight in the zone of the publishing time, or else in UTC."""

    with_output: int
    with_artifact: int  # jobs with an artifact that no gate rejects
    clean: int  # jobs with an artifact in which nothing was found
    decided: int  # jobs on which a person decided
    approved: int


@dataclass(frozen=True, slots=True)
class DayFigures:
    """`late`: the number of late jobs; `latest`: some of them, the longest late first. `kinds`: rows of
    `admin/ended_by_kind`.
    """

    yields: DayYields
    late: int
    latest: tuple[LateJob, ...]
    kinds: tuple[Row[Any], ...]
    processes: Mapping[str, Connected]


class DaySource:
    """Reads the figures from Postgres, each part rarely enough to take at most a twentieth of the time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = make_engine(settings, application="cli", pool_size=1)
        self._yields = Paced(lambda: _yields(self._engine, settings.publish_by), 10.0)
        self._late = Paced(lambda: _late(self._engine, settings.publish_by), 2.0)
        self._kinds = Paced(lambda: _rows(self._engine, "admin/ended_by_kind"), 10.0)
        self._processes = Paced(lambda: connected(self._engine), 2.0)

    def read(self) -> DayFigures:
        with reaching(self._settings):
            late, latest = self._late.value()[0]
            kinds, processes = self._kinds.value()[0], self._processes.value()[0]
            return DayFigures(self._yields.value()[0], late, latest, kinds, processes)

    def close(self) -> None:
        self._engine.dispose()


def _yields(engine: Engine, publish_by: PublishingTime | None) -> DayYields:
    now = datetime.now(publish_by.zone if publish_by else UTC)
    window = {"since": now.replace(hour=0, minute=0, second=0, microsecond=0), "until": now}
    rows = _rows(engine, "admin/usage_yields", **window)
    return DayYields(*(sum(int(getattr(row, field.name)) for row in rows) for field in fields(DayYields)))


def _late(engine: Engine, publish_by: PublishingTime | None) -> tuple[int, tuple[LateJob, ...]]:
    published = None
    if publish_by is not None:
        published = datetime.fromtimestamp(publish_by.next_after(time.time() - DAY), UTC)  # the last publishing time
    rows = _rows(engine, "admin/late_jobs", published=published, limit=SHOWN_LATE)
    return rows[0].jobs if rows else 0, tuple(LateJob(row.id, row.kind, row.state, row.due) for row in rows)


def _rows(engine: Engine, name: str, **parameters: object) -> tuple[Row[Any], ...]:
    with engine.connect() as connection:
        return tuple(connection.execute(statement(name), parameters))
