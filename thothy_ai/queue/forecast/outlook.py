"""`Forecast`: everything that is said about the queue's future at one moment, and its JSON form.

The time to empty is that of the jobs that stand, their retries and their follow-up jobs, if nothing else arrives. With
arrivals it assumes that jobs go on arriving at the rate of the last minutes: an indication, without a ninth decile,
because the time of the next batch is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from thothy_ai.queue.forecast.deadlines import Late, late_jobs, left_at
from thothy_ai.queue.forecast.estimate import Costs, Quantiles, time_to_empty, work_done
from thothy_ai.queue.forecast.learning import History, open_by_key
from thothy_ai.queue.forecast.values import Observation

MAX_DEADLINES = 50  # the soonest


class Basis(StrEnum):
    """Whether there is a time to empty, and why not."""

    LEARNT = "learnt"
    EMPTY = "empty"
    NO_ENGINE = "no_engine"
    NO_HISTORY = "no_history"


@dataclass(frozen=True, slots=True)
class KindLeft:
    """What is left of a kind. `learnt_from`: finished jobs, decayed; 0: the cost is that of the other kinds."""

    kind: str
    model: str
    jobs: float
    gpu_seconds: float | None
    learnt_from: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast. Times in seconds from `at`, which is in seconds since the epoch; None: not known.

    `engines`, `returning`: those that are ready, and those that start again. `unserved`: jobs that name a model which
    no engine serves; they are in no other figure. `gpu_seconds`: of devices, which are GPUs if `on_gpu`. `late`,
    `late_p90`: jobs that miss their deadline at the median pace and at a slow one. `publish_left`: jobs open at the
    publishing time.
    """

    at: float
    basis: Basis
    paused: bool
    open_jobs: float
    delayed: float
    unserved: float
    engines: int
    gpu_seconds: float | None
    p50: float | None
    p90: float | None
    with_arrivals_p50: float | None
    arrivals_per_second: float
    late: float
    late_p90: float
    publish_at: float | None = None
    publish_left: float | None = None
    publish_left_p90: float | None = None
    returning: int = 0
    on_gpu: bool = False
    kinds: tuple[KindLeft, ...] = ()
    deadlines: tuple[Late, ...] = ()

    @property
    def unit(self) -> str:
        """What a second of a device is called."""
        return "GPU-second" if self.on_gpu else "compute-second"

    def after(self, seconds: float) -> Forecast:
        """The same forecast `seconds` later: the times to empty are shorter by as much, except in a pause."""
        if self.paused or seconds <= 0:
            return self

        def less(time: float | None) -> float | None:
            return None if time is None else max(time - seconds, 0.0)

        return replace(
            self,
            at=self.at + seconds,
            p50=less(self.p50),
            p90=less(self.p90),
            with_arrivals_p50=less(self.with_arrivals_p50),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/forecast.md. Infinity becomes None."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Forecast:
        nested = {
            "basis": Basis(values["basis"]),
            "kinds": tuple(KindLeft(**each) for each in values["kinds"]),
            "deadlines": tuple(Late(**each) for each in values["deadlines"]),
        }
        return cls(**{**values, **nested})


def forecast(history: History, observed: Observation, publish_at: float | None = None) -> Forecast:
    """The forecast for an observation that is part of `history`, or for a later one. A pause is taken to end now."""
    seen, costs = observed.served(), Costs(history)
    time = time_to_empty(seen, costs)
    coming = with_arrivals(seen, costs)
    slow = time.p90 / time.p50 if time and time.p50 > 0 else 1.0
    kinds = tuple(_kinds(seen, costs))
    deadlines = late_jobs(seen, costs, slow)
    until = None if publish_at is None else max(publish_at - seen.at, 0.0)
    known = all(kind.gpu_seconds is not None for kind in kinds)
    if not seen.open_jobs:
        basis = Basis.EMPTY
    elif not seen.expected:
        basis = Basis.NO_ENGINE
    else:
        basis = Basis.LEARNT if costs.known else Basis.NO_HISTORY
    return Forecast(
        at=seen.at,
        basis=basis,
        paused=seen.paused,
        open_jobs=seen.open_jobs,
        delayed=sum(observed.delayed.values()),
        unserved=observed.waiting_jobs - seen.waiting_jobs,
        engines=seen.ready,
        gpu_seconds=sum(kind.gpu_seconds or 0.0 for kind in kinds) if known else None,
        p50=time.p50 if time else None,
        p90=time.p90 if time else None,
        with_arrivals_p50=coming.p50 if coming else None,
        arrivals_per_second=sum(history.arrivals.values()),
        late=sum(each.late for each in deadlines),
        late_p90=sum(each.late_p90 for each in deadlines),
        publish_at=publish_at,
        publish_left=None if until is None else left_at(seen, costs, until, 1.0),
        publish_left_p90=None if until is None else left_at(seen, costs, until, slow),
        returning=len(seen.until_back),
        on_gpu=history.on_gpu,
        kinds=kinds,
        deadlines=deadlines[:MAX_DEADLINES],
    )


def with_arrivals(seen: Observation, costs: Costs) -> Quantiles | None:
    """The time to empty if jobs go on arriving at the rate of the last minutes; None if not known, or never."""
    if not costs.known or not seen.open_jobs:
        return None
    arriving = sum(rate * costs[key].work for key, rate in costs.history.arrivals.items())  # follow-ups arrive as well
    found = time_to_empty(seen, costs, arriving)
    return found if found is not None and math.isfinite(found.p50) else None


def _kinds(seen: Observation, costs: Costs) -> Iterator[KindLeft]:
    devices = costs.history.gpus if costs.known else 0.0  # per engine
    done = work_done(seen, costs) if devices else {}
    for key, jobs in sorted(open_by_key(seen).items()):
        seconds = (jobs * costs.with_follow_ups(key) - done.get(key, 0.0)) * devices if devices else None
        yield KindLeft(key.kind, key.model, jobs, seconds, round(costs[key].known, 1) if costs.known else 0.0)
