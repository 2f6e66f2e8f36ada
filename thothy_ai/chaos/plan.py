"""`draw_plan`: draws which faults a run injects, and in which order. The same seed draws the same plan."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    WORKER_KILLED = "worker SIGKILL"
    WORKER_TERMINATED = "worker SIGTERM"
    WORKER_STALLED = "worker SIGSTOP beyond its lease"
    ENGINE_KILLED = "engine SIGKILL"
    MACHINE_LOST = "engine and worker gone for good"
    DISPATCHER_KILLED = "dispatcher SIGKILL"
    DISPATCHERS_SPLIT = "two dispatchers at once"
    REAPER_KILLED = "reaper SIGKILL"
    REDIS_KILLED = "Redis SIGKILL, data gone"
    REDIS_FLUSHED = "Redis FLUSHALL"
    REDIS_CUT = "Redis CLIENT KILL"
    REDIS_DISK_FULL = "Redis cannot write its disk"
    REDIS_MEMORY_FULL = "Redis out of memory"
    POSTGRES_RESTARTED = "Postgres restart"
    POSTGRES_CRASHED = "Postgres crash"
    POSTGRES_AWAY = "Postgres away"
    POSTGRES_CUT = "Postgres cuts every session"
    NETWORK_SLOW = "network 200 ms slower"
    NETWORK_CUT = "network cut"
    CLOCK_SKEWED = "clock skew"


POSTGRES = (
    FaultKind.POSTGRES_RESTARTED,
    FaultKind.POSTGRES_CRASHED,
    FaultKind.POSTGRES_AWAY,
    FaultKind.POSTGRES_CUT,
    FaultKind.DISPATCHERS_SPLIT,
)
REDIS = (
    FaultKind.REDIS_KILLED,
    FaultKind.REDIS_FLUSHED,
    FaultKind.REDIS_CUT,
    FaultKind.REDIS_DISK_FULL,
    FaultKind.REDIS_MEMORY_FULL,
)


def rivals(kind: FaultKind) -> Collection[FaultKind]:
    """The faults at the same target, including itself: only one of them can be active."""
    return next((group for group in (POSTGRES, REDIS) if kind in group), (kind,))


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at`: the share of jobs that have ended when it is injected; `draw`: the seed of its own choices."""

    at: float
    kind: FaultKind
    draw: int


def draw_plan(seed: int, faults: int, without: Collection[FaultKind] = ()) -> list[Fault]:
    """Draw `faults` faults, evenly spread over the drain. Every kind occurs once before any occurs twice."""
    rng = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    wanted = [kind for kind in FaultKind if kind not in without]
    kinds: list[FaultKind] = []
    while len(kinds) < faults:
        kinds += rng.sample(wanted, len(wanted))
    return [
        Fault((number + 0.5) / (faults + 1), kind, rng.getrandbits(32)) for number, kind in enumerate(kinds[:faults])
    ]
