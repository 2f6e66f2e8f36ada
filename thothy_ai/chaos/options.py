"""The options of a chaos run, and the settings of its stack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NULL_LATENCY = 0.02  # seconds that each answer of the null engine takes, and for which it is billed
BASELINE_SHARE = 5  # one in so many jobs is drained first, without faults
MAX_BASELINE_JOBS = 2_000
LONG_RUN = 40  # faults, from which on Postgres is unreachable for a long time once
LONG_AWAY, SHORT_AWAY = 30.0, 3.0  # seconds
LONG_PATIENCE, SHORT_PATIENCE = 2.0, 1.0  # seconds
MIN_WORKERS = 2
SLOW_WORKER = "worker-2"  # behind proxies, with a skewed clock
DISPATCHERS = ("dispatcher-1", "dispatcher-2")

# Leases and pauses are short, so that a run of minutes has many of them. All other settings are the defaults.
QUICK: dict[str, Any] = {
    "tenant": "chaos",
    "kinds": ("thothy_ai.chaos.kind",),
    "worker_in_flight": 64,
    "lease_seconds": 3,
    "heartbeat_seconds": 0.5,
    "shutdown_deadline_seconds": 2,
    "retry_base_seconds": 0.1,
    "retry_cap_seconds": 1,
    "max_attempts": 10,
    "dispatch_interval_seconds": 0.1,
    "dispatch_timeout_seconds": 2,
    "reap_interval_seconds": 0.5,
    "log_level": "WARNING",
}


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """`model` None: the null engine. `minutes`: when the run gives up; jobs that are still open then count as missing.

    Several engines have one worker each, like separate machines; a single engine has two workers.
    """

    seed: int = 1
    jobs: int = 10_000
    faults: int = 40
    model: Path | None = None
    minutes: float = 10
    engines: int = 1

    @property
    def baseline_jobs(self) -> int:
        """Jobs of the drain without faults."""
        return min(MAX_BASELINE_JOBS, self.jobs // BASELINE_SHARE)

    @property
    def patience_seconds(self) -> float:
        """Seconds after which the next fault is injected even if a fault has brought the drain to a stop."""
        return LONG_PATIENCE if self.faults >= LONG_RUN else SHORT_PATIENCE

    @property
    def away_seconds(self) -> float:
        """How long Postgres is unreachable the first time."""
        return LONG_AWAY if self.faults >= LONG_RUN else SHORT_AWAY
