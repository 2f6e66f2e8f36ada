"""`RunSummary`: what happened in a chaos run, as numbers, read from Postgres once it is over."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.request import urlopen

from sqlalchemy import Engine, text

from thothy_ai.chaos.rig import Rig
from thothy_ai.db.statements import statement
from thothy_ai.queue import books

COUNTS = text("""
SELECT
    (SELECT count(*) FROM job WHERE parent_id IS NULL) AS jobs,
    (SELECT count(*) FROM job WHERE parent_id IS NOT NULL) AS follow_ups,
    (SELECT coalesce(sum(dispatch_no), 0) FROM job) AS sent,
    (SELECT count(*) FROM job_event WHERE event = 'republished') AS republished,
    (SELECT count(*) FROM attempt) AS attempts,
    (SELECT count(*) FROM attempt WHERE outcome = 'lost') AS attempts_lost,
    (SELECT count(*) FROM attempt WHERE outcome = 'released') AS attempts_released,
    (SELECT coalesce(sum(n - 1), 0) FROM (
        SELECT count(*) AS n FROM attempt WHERE outcome = 'succeeded' GROUP BY job_id
    ) AS succeeded) AS duplicates,
    (SELECT count(*) FROM job WHERE finished_at IS NULL) AS open,
    (SELECT count(*) FROM job WHERE failures > max_attempts) AS beyond_limit,
    (SELECT count(*) FROM job JOIN job_request ON job_id = id
        WHERE state = 'dead' AND request ->> 'verdict' = 'accepted') AS dead_of_faults
""")
STATES = text("SELECT state, count(*) AS jobs FROM job GROUP BY state ORDER BY count(*) DESC")
BILLING = text("""
SELECT count(*) AS sessions, coalesce(sum(busy_seconds), 0) AS busy, coalesce(sum(billed), 0) AS billed,
    coalesce(sum(wasted), 0) AS wasted, coalesce(sum(greatest(busy_seconds - billed, 0)), 0) AS unbilled
FROM engine_session JOIN LATERAL (
    SELECT coalesce(sum(compute_seconds), 0) AS billed,
        coalesce(sum(compute_seconds) FILTER (WHERE outcome IN ('lost', 'released')), 0) AS wasted
    FROM attempt WHERE engine_session_id = engine_session.id
) AS billing ON true
""")
FENCED = re.compile(rb"^thothy_results_fenced_total ([0-9.e+]+)$", re.MULTILINE)
SCRAPE_SECONDS = 0.3
HOUR = 3600.0


class Drains(NamedTuple):
    """Jobs and seconds of the drain without faults and of the one with them."""

    baseline_jobs: int
    baseline_seconds: float
    faulted_jobs: int
    faulted_seconds: float

    @property
    def faulted_seconds_without_faults(self) -> float:
        """Seconds that the jobs of the second drain would have taken without faults."""
        return self.faulted_jobs * self.baseline_seconds / max(self.baseline_jobs, 1)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Messages, attempts, jobs and seconds. `results_fenced` is what workers had counted at the last scrape.

    `wasted_seconds` are billed to attempts that were lost or released. They include `divided_seconds`, which cannot be
    traced to a single attempt.
    """

    jobs: int
    follow_ups: int
    sent: int
    lost_in_redis: int
    republished: int
    attempts: int
    attempts_lost: int
    attempts_released: int
    results_fenced: int
    duplicates: int
    missing: int
    beyond_limit: int
    dead_of_faults: int
    states: dict[str, int]
    engine_sessions: int
    busy_seconds: float
    billed_seconds: float
    wasted_seconds: float
    divided_seconds: float
    baseline_jobs: int
    baseline_seconds: float
    faulted_jobs: int
    faulted_seconds: float
    faulted_seconds_without_faults: float


def read_summary(
    engine: Engine, wanted: int, lost_in_redis: int, fenced: int, divided: float, drains: Drains
) -> RunSummary:
    """The summary of a run that had to send `wanted` jobs."""
    with engine.connect() as connection:
        counts = dict(connection.execute(COUNTS).mappings().one())
        billing = connection.execute(BILLING).one()
        states = {str(row.state): int(row.jobs) for row in connection.execute(STATES)}
    still_open = counts.pop("open")
    return RunSummary(
        **{name: int(count) for name, count in counts.items()},
        lost_in_redis=lost_in_redis,
        results_fenced=fenced,
        missing=wanted - int(counts["jobs"]) + int(still_open),
        states=states,
        engine_sessions=billing.sessions,
        busy_seconds=billing.busy,
        billed_seconds=billing.billed,
        wasted_seconds=billing.wasted,
        divided_seconds=divided,
        **drains._asdict(),
        faulted_seconds_without_faults=drains.faulted_seconds_without_faults,
    )


def settle_sessions(engine: Engine) -> float:
    """End and settle every session, as the reaper does a minute later; returns the seconds that were divided."""
    with engine.begin() as connection:
        unbilled = float(connection.execute(BILLING).one().unbilled)
        connection.execute(statement("queue/end_sessions"), {"silence_seconds": -HOUR})
        books.settle_sessions(connection)
    return unbilled


class FencedResults:
    """The workers' counters, by process. A counter dies with its worker, and is therefore scraped repeatedly."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._seen: dict[int, int] = {}

    def scrape(self) -> None:
        """Scrape every worker that answers."""
        for name, port in self._rig.metrics_ports.items():
            if not (pid := self._rig.pid(name)):
                continue
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_SECONDS) as answer:
                if found := FENCED.search(answer.read()):
                    self._seen[pid] = int(float(found.group(1)))

    @property
    def total(self) -> int:
        """The sum over all worker processes."""
        return sum(self._seen.values())
