"""The forecast itself: from the history and what is open to the median and the ninth decile of the time to empty.

    while jobs wait:    work that waits, over the rate at which the engines work
    then:               the last jobs in flight end, on engines that are less and less full

The spread has three sources, which add up as variances of the logarithm: the jobs' own costs, how well their means are
known, and what changes meanwhile (`DRIFT`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thothy_ai.queue.forecast.durations import Cell, Duration, last_end
from thothy_ai.queue.forecast.learning import Busy, History, Sums
from thothy_ai.queue.forecast.values import Key, Observation, RunningJobs, WaitingJobs

DRIFT = 0.10  # standard deviation of the logarithm: engines and jobs change while a queue drains
Z90 = 1.2816
RECENT_PRIOR = 12.0  # jobs: what the days' mean of a kind is worth beside the last minutes'
UNKNOWN_SPREAD = 0.7  # of the logarithm of a cost that was guessed from other kinds
BUSY_PRIOR_SECONDS, BUSY_PRIOR = 60.0, 0.95  # of an engine while jobs wait
MIN_SIGMA, DEFAULT_SIGMA = 0.1, 0.5  # of the logarithm of durations
LATE = 3.0  # in one case of ten, an engine takes that many times as long to come back


@dataclass(frozen=True, slots=True)
class KindCost:
    """What a job of a kind takes at full load. `work`: compute-seconds until it is finished, retries included.

    `attempt`: of one attempt. `cv2`: the squared coefficient of variation per job. `known`: over how many jobs.
    """

    work: float
    attempt: float
    cv2: float
    known: float
    retry: float
    duration: Duration

    def left(self, group: RunningJobs) -> float:
        """Compute-seconds left of running jobs, their retries included."""
        share = self.duration.left(group.age) / self.duration.mean
        return group.jobs * (self.attempt * min(share, 3.0) + self.work - self.attempt)

    @property
    def stationary_left(self) -> float:
        """Compute-seconds left of a job at a random moment of its run."""
        return self.attempt * self.duration.stationary_left / self.duration.mean + self.work - self.attempt


class Costs:
    """What jobs of every kind take, with what is assumed for unknown ones."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._found: dict[Key, KindCost] = {}
        kinds = [sums for key, sums in history.long.items() if not key.model]
        self._all = Sums(*(sum(getattr(s, name) for s in kinds) for name in Sums.__slots__))

    @property
    def known(self) -> bool:
        """Whether there is any history to go by."""
        return self._all.finished > 0 and self._all.compute > 0

    def __getitem__(self, key: Key) -> KindCost:
        if key in self._found:
            return self._found[key]
        long = self.history.long.get(key) or self.history.long.get(Key(key.kind)) or Sums()
        recent = self.history.recent.get(key) or self.history.recent.get(Key(key.kind)) or Sums()
        base = long if long.finished >= 0.5 and long.compute > 0 else self._all
        work = (recent.compute + RECENT_PRIOR * base.compute / base.finished) / (recent.finished + RECENT_PRIOR)
        retry = max(0.0, 1 - (base.finished + 1e-9) / base.attempts) if base.attempts else 0.0
        attempts = max(base.attempts, 1.0)
        mean = base.compute / attempts
        variance = max(base.compute_squares / attempts - mean**2, 0.0)
        found = self._found[key] = KindCost(
            work,
            work * (1 - retry),
            cv2=max(variance / mean**2, 0.05) if mean else 1.0,
            known=0.0 if base is self._all else long.finished,
            retry=min(retry, 0.5),
            duration=_duration(base, recent),
        )
        return found

    def follow_ups(self, kind: str) -> Iterator[tuple[str, float]]:
        """The kinds of a kind's follow-ups, and how many come per finished job."""
        parents = self.history.parents.get(kind, 0.0)
        for child, number in self.history.children.get(kind, {}).items():
            if parents > 0 and number > 0:
                yield child, number / parents

    def with_follow_ups(self, key: Key) -> float:
        """Compute-seconds of a job, its retries and its follow-ups, which are up to two generations deep."""
        return self[key].work + sum(
            ratio
            * (
                self[Key(child, key.model)].work
                + sum(more * self[Key(last, key.model)].work for last, more in self.follow_ups(child))
            )
            for child, ratio in self.follow_ups(key.kind)
        )

    def busy_share(self) -> float:
        """Compute-seconds that an engine does per second while jobs wait: of days, drawn to the last minutes'."""

        def share(busy: Busy, prior: float) -> float:
            return (busy.compute + BUSY_PRIOR_SECONDS * prior) / (busy.engine_seconds + BUSY_PRIOR_SECONDS)

        return share(self.history.busy_recent, share(self.history.busy, BUSY_PRIOR))


def _duration(base: Sums, recent: Sums) -> Duration:
    prior = base.log_run / base.runs if base.runs else 0.0
    mu = (recent.log_run + RECENT_PRIOR * prior) / (recent.runs + RECENT_PRIOR)
    if base.runs < 3:
        return Duration(mu, DEFAULT_SIGMA)
    variance = max(base.log_run_squares / base.runs - prior**2, 0.0)
    return Duration(mu, max(math.sqrt(variance), MIN_SIGMA))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A time's median and ninth decile, in seconds."""

    p50: float
    p90: float


def time_to_empty(seen: Observation, costs: Costs, arriving: float = 0.0) -> Quantiles | None:
    """The time until nothing is open. `arriving`: compute-seconds that arrive per second.

    Where engines serve several models, the jobs that name one wait for its engines. None without an engine, or without
    any history; infinite if jobs arrive faster than they are done.
    """
    whole = _time_to_empty(seen, costs, arriving)
    if whole is None or len(seen.engines) < 2:
        return whole
    pools = [_time_to_empty(seen.of_model(model), costs, 0.0) for model in seen.engines]
    times = [whole, *(pool for pool in pools if pool)]
    return Quantiles(max(time.p50 for time in times), max(time.p90 for time in times))


def _time_to_empty(seen: Observation, costs: Costs, arriving: float) -> Quantiles | None:
    if not seen.open_jobs:
        return Quantiles(0.0, 0.0)
    if not seen.expected or not costs.known:
        return None
    slots = (costs.history.slots or max(seen.running_jobs / seen.expected, 1.0)) * seen.expected
    first = _while_waiting(seen, costs, slots, arriving) if seen.waiting_jobs > 0 else Quantiles(0.0, 0.0)
    # From the claim of the last waiting job, or from now if none waits, to the last end.
    share = costs.history.load_share
    cells: list[Cell] = []  # what is in flight when no job waits any more, and the runs that follow it
    for key, jobs, age in _in_flight_last(seen, costs, slots):
        cost = costs[key]
        cells.append(Cell(jobs, cost.duration, age))
        cells.append(Cell(jobs * cost.retry, cost.duration, age, cost.duration))
        for kind, ratio in costs.follow_ups(key.kind):
            cells.append(Cell(jobs * ratio, cost.duration, age, costs[Key(kind, key.model)].duration))
    median, decile = last_end(cells, lambda jobs: 1 - share + share * min(jobs / slots, 1.0))
    decile = decile * math.exp(Z90 * DRIFT) if decile else 0.0
    # The medians add, the distances to the deciles add as variances.
    middle = first.p50 + median
    return Quantiles(middle, middle + math.hypot(first.p90 - first.p50, decile - median))


def _while_waiting(seen: Observation, costs: Costs, slots: float, arriving: float) -> Quantiles:
    """The time until the last waiting job has been claimed."""
    waiting = sum(group.jobs * costs.with_follow_ups(group.key) for group in seen.waiting)
    begun = sum(costs[group.key].left(group) for group in seen.running)
    flying = min(slots, seen.open_jobs) / seen.waiting_jobs
    after = flying * sum(group.jobs * costs[group.key].stationary_left for group in seen.waiting)
    work = max(waiting + begun - after, 0.0)
    each, back = costs.busy_share(), seen.until_back
    if each * seen.expected <= arriving:
        return Quantiles(math.inf, math.inf)
    median = _seconds_for(work, each, seen.ready, back, arriving)
    late = _seconds_for(work, each, seen.ready, [LATE * seconds for seconds in back], arriving)
    sigma = _sigma(seen.waiting, costs) if work > 0 else 0.0
    return Quantiles(median, median + math.hypot(median * (math.exp(Z90 * sigma) - 1), late - median))


def _seconds_for(work: float, each: float, ready: int, back: Sequence[float], arriving: float) -> float:
    """How long engines take for this work, while others come back. `each`: compute-seconds per second of an engine."""
    at, engines = 0.0, ready
    for seconds in back:
        rate = each * engines - arriving
        if rate > 0 and rate * (seconds - at) >= work:
            break
        at, engines, work = seconds, engines + 1, work - rate * (seconds - at)
    return at + work / (each * engines - arriving)


def head_start(seen: Observation, costs: Costs) -> float:
    """Compute-seconds that running jobs need beyond what is always in flight while jobs wait: the first wait for it."""
    if seen.running_jobs < (costs.history.slots or 0.0) * seen.expected:
        return 0.0
    begun = sum(costs[group.key].left(group) for group in seen.running)
    return max(begun - sum(group.jobs * costs[group.key].stationary_left for group in seen.running), 0.0)


def work_done(seen: Observation, costs: Costs) -> dict[Key, float]:
    """Compute-seconds that running jobs have behind them, by key."""
    found: dict[Key, float] = {}
    for group in seen.running:
        cost = costs[group.key]
        done = max(group.jobs * cost.work - cost.left(group), 0.0)  # one that takes long has not gone back
        found[group.key] = found.get(group.key, 0.0) + done
    return found


def _sigma(waiting: Sequence[WaitingJobs], costs: Costs) -> float:
    """The standard deviation of the logarithm of the time that this work takes."""
    by_key: dict[Key, float] = {}
    for group in waiting:
        by_key[group.key] = by_key.get(group.key, 0.0) + group.jobs
    total = sum(jobs * costs.with_follow_ups(key) for key, jobs in by_key.items())
    variance = 0.0
    for key, jobs in by_key.items():
        cost, each = costs[key], costs.with_follow_ups(key)
        mean = cost.cv2 / cost.known if cost.known >= 1 else UNKNOWN_SPREAD**2
        variance += (jobs * each / total) ** 2 * (cost.cv2 / jobs + mean)
    return math.sqrt(variance + DRIFT**2)


def _in_flight_last(seen: Observation, costs: Costs, slots: float) -> Iterator[tuple[Key, float, float | None]]:
    """The kinds in flight then, how many jobs of each, and their age; None: at a random moment of their run."""
    if not seen.waiting_jobs:
        yield from ((group.key, group.jobs, group.age) for group in seen.running)
        return
    follow = [  # the follow-ups of waiting jobs, which run after them
        WaitingJobs(Key(kind, group.key.model), group.jobs * ratio, math.inf)
        for group in seen.waiting
        for kind, ratio in costs.follow_ups(group.key.kind)
    ]
    last: dict[Key, float] = {}  # the last jobs in planned order, as many as are in flight at once
    room = slots
    for waiting in sorted((*seen.waiting, *follow), key=lambda each: -each.order):
        taken = min(waiting.jobs, room)
        if taken > 0:
            last[waiting.key] = last.get(waiting.key, 0.0) + taken
        room -= taken
    length = sum(jobs * costs[key].duration.mean for key, jobs in last.items())
    at_once = min(slots, seen.open_jobs)
    for key, jobs in last.items():
        yield key, at_once * jobs * costs[key].duration.mean / length, None
