"""What the service recorded of a benchmark's jobs: times by Postgres' clock, and the worker's histogram of commits."""

from __future__ import annotations

import urllib.request
from datetime import datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from thothy_ai.bench.service.figures import QueueTimes, quantile
from thothy_ai.db.statements import statement
from thothy_ai.embedded.stack import SERVICES
from thothy_ai.settings import Settings

COMMIT = "thothy_worker_commit_seconds_bucket"


class Records:
    """One stack's record of jobs. Blocking; `since` is when they were enqueued, or earlier."""

    def __init__(self, settings: Settings, database: Engine) -> None:
        self._settings, self._database = settings, database

    def now(self) -> datetime:
        """The time by Postgres' clock, which all times of the record are."""
        [row] = self._ask("admin/now")
        moment: datetime = row[0]
        return moment

    def seconds(self, since: datetime) -> float | None:
        """Seconds until the last job ended; None while one is open."""
        [row] = self._ask("cli/bench_progress", since=since)
        return None if row.open or row.seconds is None else float(row.seconds)

    def commits(self) -> dict[float, float]:
        """The worker's cumulative histogram from an engine's result to its commit: count by upper bound in seconds."""
        port = self._settings.metrics_port + SERVICES.index("worker")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            families = text_string_to_metric_families(page.read().decode())
        samples = [sample for family in families for sample in family.samples if sample.name == COMMIT]
        return {float(sample.labels["le"]): sample.value for sample in samples}

    def times(self, since: datetime, enqueue: float, commits_before: dict[float, float]) -> QueueTimes:
        """How long the jobs waited, and how their attempts ended."""
        [claims] = self._ask("cli/bench_claims", since=since)
        took = {bound: count - commits_before.get(bound, 0.0) for bound, count in self.commits().items()}
        return QueueTimes(
            enqueue=enqueue,
            claimed=(claims.first, claims.median, claims.last),
            commit_p50=quantile(took, 0.5),
            commit_p99=quantile(took, 0.99),
            outcomes={row.outcome: row.attempts for row in self._ask("cli/bench_outcomes", since=since)},
        )

    def _ask(self, name: str, **parameters: Any) -> list[Any]:
        with self._database.connect() as connection:
            return list(connection.execute(statement(name), parameters))
