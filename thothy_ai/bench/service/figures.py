"""The figures of `thothy bench service`, which compares the service with its bare engine on the same jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from thothy_ai.bench.figures import Figure
from thothy_ai.engine.api import EngineStats

_FULL = 0.9  # the share of a run's peak of running sequences at which the engine counts as full
_TENTHS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """The engine's counters, `at` seconds after a run began."""

    at: float
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One drain. `samples` were taken during the drain, the first before its start and the last after its end."""

    name: str
    seconds: float
    jobs: int
    requests: int  # generations
    samples: tuple[Sample, ...]

    def gained(self, counter: str) -> float:
        """How much a counter of the core grew."""
        first, last = self.samples[0].stats.core, self.samples[-1].stats.core
        return float(getattr(last, counter) - getattr(first, counter))

    def reached(self, holds: Callable[[EngineStats], bool]) -> float:
        """Seconds from the start to the first sample for which `holds` is true; the run's seconds if there is none."""
        return next((sample.at for sample in self.samples[1:] if holds(sample.stats)), self.seconds)

    @property
    def running(self) -> list[int]:
        """The number of running sequences in each sample of the drain."""
        return [sample.stats.scheduler.running for sample in self.samples[1:] if sample.at <= self.seconds] or [0]

    @property
    def full_at(self) -> float:
        """When the engine first ran nearly as many sequences as at its peak, in seconds."""
        most = max(self.running)
        return self.reached(lambda stats: stats.scheduler.running >= _FULL * most)

    @property
    def prompts_at(self) -> float:
        """When the core had received all requests, their prompts tokenized, in seconds."""
        before = self.samples[0].stats.core.requests_finished

        def known(stats: EngineStats) -> int:
            return stats.scheduler.running + stats.scheduler.waiting + stats.core.requests_finished - before

        return self.reached(lambda stats: known(stats) >= self.requests)

    @property
    def busy_by_tenth(self) -> list[float]:
        """The share of time in which the device was in steps, for each tenth of the run, interpolated from samples."""
        ends = [self.seconds * tenth / _TENTHS for tenth in range(_TENTHS + 1)]
        busy = np.interp(
            ends, [each.at for each in self.samples], [each.stats.core.busy_seconds for each in self.samples]
        )
        return [float(share) for share in np.diff(busy) / (self.seconds / _TENTHS)]

    @property
    def last_result_at(self) -> float:
        """When the engine had finished its last request, in seconds, by the samples."""
        ended = self.samples[0].stats.core.requests_finished + self.requests
        return self.reached(lambda stats: stats.core.requests_finished >= ended)


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Times of the run through the service, in seconds, as Postgres and the worker recorded them.

    `claimed`: from enqueueing to the claim, for the first, the median and the last job. `judging` is the mean time of a
    task in a judging process, `judge_waits` the mean wait for a process. `outcomes` count attempts.
    """

    enqueue: float
    claimed: tuple[float, float, float]
    commit_p50: float
    commit_p99: float
    judge_tasks: int
    judging: float
    judge_waits: float
    outcomes: Mapping[str, int] = field(default_factory=dict)


def service_figures(
    first: ServiceRun, before: ServiceRun, service: ServiceRun, after: ServiceRun, times: QueueTimes, unit: str
) -> list[Figure]:
    """The service's ratio to the mean of `before` and `after`, then a row per figure with the four runs side by side,
    then what the service adds.
    """

    def per_step(counter: str) -> Callable[[ServiceRun], str]:
        return lambda run: f"{run.gained(counter) / max(1.0, run.gained('steps')) * 1e3:.2f} ms"

    def hit_rate(run: ServiceRun) -> float:
        return run.gained("cached_tokens") / max(1, run.gained("prompt_tokens"))

    def first_at(run: ServiceRun) -> float:
        return run.reached(lambda stats: stats.scheduler.running > 0)

    def own_time(run: ServiceRun) -> str:
        return f"{(run.seconds - run.gained('wait_seconds')) / max(1.0, run.gained('steps')) * 1e3:.2f} ms"

    runs = (first, before, service, after)
    columns: list[tuple[str, Callable[[ServiceRun], str]]] = [
        ("seconds", lambda run: f"{run.seconds:.2f}"),
        (f"jobs per {unit}", lambda run: f"{run.jobs / run.seconds * 3600:,.0f}"),
        ("prompt tokens", lambda run: f"{run.gained('prompt_tokens'):,.0f}"),
        ("output tokens", lambda run: f"{run.gained('output_tokens'):,.0f}"),
        ("prefix cache hit rate", lambda run: f"{hit_rate(run):.1%}"),
        ("steps", lambda run: f"{run.gained('steps'):,.0f}"),
        ("time in steps, launch gaps included", lambda run: f"{run.gained('busy_seconds') / run.seconds:.1%}"),
        ("the same by tenth of the run", lambda run: " ".join(f"{share:.0%}" for share in run.busy_by_tenth)),
        ("time in steps", lambda run: f"{run.gained('busy_seconds'):.2f} s"),
        ("host late, requests being in flight", lambda run: f"{run.gained('gap_seconds'):.2f} s"),
        ("host's own time per step", own_time),
        ("device time per step", per_step("busy_seconds")),
        ("masks per step", per_step("mask_seconds")),
        ("sequences running, most and mean", lambda run: f"{max(run.running):,}, {fmean(run.running):,.0f}"),
        ("first sequences running after", lambda run: f"{first_at(run):.2f} s"),
        ("all prompts tokenized after", lambda run: f"{run.prompts_at:.2f} s"),
        (f"{_FULL:.0%} of the most running after", lambda run: f"{run.full_at:.2f} s"),
        ("from the engine's last result to the end", lambda run: f"{max(0.0, run.seconds - run.last_result_at):.2f} s"),
    ]
    claimed = ", ".join(f"{seconds:.2f} s" for seconds in times.claimed)
    outcomes = sorted(times.outcomes.items(), key=lambda item: -item[1])
    return [
        ("jobs", f"{service.jobs:,}"),
        ("generations", f"{service.requests:,}"),
        ("runs, in this order", "; ".join(run.name for run in runs)),
        ("service over the bare engine around it", f"{service.seconds / fmean((before.seconds, after.seconds)):.3f}"),
        *((name, "; ".join(value(run) for run in runs)) for name, value in columns),
        ("enqueueing all jobs", f"{times.enqueue:.2f} s"),
        ("from enqueueing to claim: first, median, last", claimed),
        ("from result to commit: median, p99", f"{times.commit_p50 * 1e3:.0f} ms, {times.commit_p99 * 1e3:.0f} ms"),
        (
            "tasks of the judging processes: number, mean time, mean wait",
            f"{times.judge_tasks:,}, {times.judging * 1e3:.1f} ms, {times.judge_waits * 1e3:.1f} ms",
        ),
        ("attempts", f"{sum(times.outcomes.values()):,} of {service.jobs:,} jobs, one each"),
        (
            "their outcomes (random weights write no text that validators accept)",
            ", ".join(f"{count:,} {name}" for name, count in outcomes),
        ),
    ]


def quantile(counts: Mapping[float, float], share: float) -> float:
    """A quantile of a cumulative histogram, interpolated within its bucket; infinite beyond the last bound."""
    bounds = sorted(counts)
    target = share * counts[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= target:
            return lower + (bound - lower) * (target - below) / max(counts[bound] - below, 1e-9)
        lower, below = bound, counts[bound]
    raise ValueError("the histogram is empty")
