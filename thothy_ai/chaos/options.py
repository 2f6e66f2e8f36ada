"""What a person chooses about a chaos run, and the settings its stack runs under."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NULL_LATENCY = 0.02  # seconds that each answer of the null engine takes, and costs
CALM_SHARE = 5  # one job in so many is drained first, without faults
MAX_CALM = 2_000
LONG_RUN = 40  # faults; from here on Postgres is away for as long as in an operator's nightmare
LONG_AWAY, SHORT_AWAY = 30.0, 3.0  # seconds
LONG_PATIENCE, SHORT_PATIENCE = 2.0, 1.0  # seconds
WORKERS = ("worker-1", "worker-2")
SLOW_WORKER = WORKERS[1]  # the one behind slow lines, under a wrong clock
DISPATCHERS = ("dispatcher-1", "dispatcher-2")

# Leases and pauses are short, so that a run of minutes sees many of them; everything else is as shipped.
QUICK: dict[str, Any] = {
    "tenant": "chaos",
    "kinds": ("thothy_ai.chaos.kind",),
    "worker_in_flight": 64,
    "lease_seconds": 3,
    "heartbeat_seconds": 0.5,
    "drain_deadline_seconds": 2,
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
    """`model` None: the null engine. `minutes`: when the run gives up; what is open then is missing."""

    seed: int = 1
    jobs: int = 10_000
    faults: int = 40
    model: Path | None = None
    minutes: float = 10

    @property
    def calm_jobs(self) -> int:
        """Jobs of the drain without faults."""
        return min(MAX_CALM, self.jobs // CALM_SHARE)

    @property
    def patience_seconds(self) -> float:
        """A drain that a fault has brought to a stop keeps the next one away no longer than this."""
        return LONG_PATIENCE if self.faults >= LONG_RUN else SHORT_PATIENCE

    @property
    def away_seconds(self) -> float:
        """How long Postgres is away the first time."""
        return LONG_AWAY if self.faults >= LONG_RUN else SHORT_AWAY
