"""Which waiting jobs will be late: the work ahead of each in planned order, against what engines do until its deadline.

A waiting job whose deadline passes expires and is not run, so that it delays no job behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thothy_ai.queue.forecast.estimate import Costs, head_start
from thothy_ai.queue.forecast.values import Observation, WaitingJobs


@dataclass(frozen=True, slots=True)
class Late:
    """Waiting jobs with one deadline. `seconds`: until then. `late`: at the median pace; `late_p90`: at a slow one."""

    seconds: float
    jobs: float
    late: float
    late_p90: float


def late_jobs(seen: Observation, costs: Costs, slow: float) -> tuple[Late, ...]:
    """The jobs per deadline, the soonest first. `slow`: the ninth decile of the time to empty over its median.

    While no engine is ready, as if those that were ready last came back now: how long they stay away is not known, and
    every job that is late then is late in any case. Empty without any, or without any history.
    """
    if not _engines(seen, costs) or not costs.known:
        return ()
    groups = sorted(seen.waiting, key=lambda group: group.order)
    median, decile = (list(_missed(seen, costs, groups, pace)) for pace in (1.0, slow))
    found: dict[float, list[float]] = {}
    for group, late, late_p90 in zip(groups, median, decile, strict=True):
        if group.deadline is not None:
            row = found.setdefault(group.deadline, [0.0, 0.0, 0.0])
            row[0], row[1], row[2] = row[0] + group.jobs, row[1] + late, row[2] + late_p90
    return tuple(Late(seconds, *found[seconds]) for seconds in sorted(found))


def left_at(seen: Observation, costs: Costs, seconds: float, slow: float) -> float | None:
    """How many of the waiting jobs are not finished `seconds` from now; None if that is not known.

    While no engine is ready, as in `late_jobs`.
    """
    if not _engines(seen, costs) or not costs.known:
        return None
    groups = sorted(seen.waiting, key=lambda group: group.order)
    until = [WaitingJobs(group.key, group.jobs, group.order, seconds) for group in groups]
    return sum(_missed(seen, costs, until, slow))


def _engines(seen: Observation, costs: Costs) -> int:
    return seen.expected or costs.history.engines


def _missed(seen: Observation, costs: Costs, groups: Sequence[WaitingJobs], slow: float) -> Iterator[float]:
    """How many jobs of each group, which are in planned order, are not finished at their deadline."""
    each_engine = costs.busy_share() / slow
    rate = each_engine * _engines(seen, costs)
    ahead = head_start(seen, costs) + each_engine * sum(seen.until_back)
    for group in groups:
        each = costs.with_follow_ups(group.key)
        runs = group.jobs
        if group.deadline is not None:
            claimed_by = group.deadline - costs[group.key].duration.mean * slow
            runs = min(max((claimed_by * rate - ahead) / each, 0.0), group.jobs)
        ahead += runs * each
        yield group.jobs - runs
