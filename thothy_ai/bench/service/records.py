"""The service's records of a benchmark's jobs: times by Postgres' clock, and the worker's histograms."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from datetime import datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from thothy_ai.bench.service.figures import QueueTimes, quantile
from thothy_ai.db.statements import statement
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.settings import Settings

HISTOGRAMS = COMMIT, JUDGING, WAITING = (
    "thothy_worker_commit_seconds",
    "thothy_judge_seconds",
    "thothy_judge_wait_seconds",
)

Readings = dict[tuple[str, float], float]  # histogram values by sample name and the bucket's upper bound


class Records:
    """One stack's record of jobs. Calls block. `since` is the time of enqueueing, or earlier."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self._settings, self._database = settings, database

    def now(self) -> datetime:
        """The time by Postgres' clock, on which all recorded times are based."""
        [row] = self._ask("admin/now")
        moment: datetime = row[0]
        return moment

    def seconds(self, since: datetime) -> float | None:
        """Seconds until the last job ended; None while a job is open."""
        [row] = self._ask("cli/bench_progress", since=since)
        return None if row.open or row.seconds is None else float(row.seconds)

    def readings(self) -> Readings:
        """The worker's histograms of judging, and of the time from an engine's result to its commit."""
        port = self._settings.metrics_port + SERVICES.index("worker")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            families = text_string_to_metric_families(page.read().decode())
        return {
            (sample.name, float(sample.labels.get("le", 0.0))): sample.value
            for family in families
            if family.name in HISTOGRAMS
            for sample in family.samples
        }

    def times(self, since: datetime, enqueue: float, before: Readings) -> QueueTimes:
        """How long the jobs waited, and how their attempts ended."""
        [claims] = self._ask("cli/bench_claims", since=since)
        gained: dict[str, dict[float, float]] = defaultdict(dict)
        for (name, bound), value in self.readings().items():
            gained[name][bound] = value - before.get((name, bound), 0.0)
        commits = gained[f"{COMMIT}_bucket"]
        tasks, judging, waiting = (
            sum(gained[name].values()) for name in (f"{JUDGING}_count", f"{JUDGING}_sum", f"{WAITING}_sum")
        )
        return QueueTimes(
            enqueue=enqueue,
            claimed=(claims.first, claims.median, claims.last),
            commit_p50=quantile(commits, 0.5),
            commit_p99=quantile(commits, 0.99),
            judge_tasks=round(tasks),
            judging=judging / max(1.0, tasks),
            judge_waits=waiting / max(1.0, tasks),
            outcomes={row.outcome: row.attempts for row in self._ask("cli/bench_outcomes", since=since)},
        )

    def _ask(self, name: str, **parameters: Any) -> list[Any]:
        with self._database.connect() as connection:
            return list(connection.execute(statement(name), parameters))
