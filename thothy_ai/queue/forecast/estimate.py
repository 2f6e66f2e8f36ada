"""The forecast itself: from what is learnt and what is open to the median and the ninth decile of the time to empty.

    while jobs wait:    work that waits, over the rate at which the engines work
    then:               the last jobs in flight end, on engines that are less and less full

The spread has three sources, which add up as variances of the logarithm: the jobs' own costs, how well their means are
known, and what changes meanwhile (`DRIFT`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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


class Costs:
    """The costs of every kind, with what is assumed for unknown ones."""

    def __init__(self, learnt: History) -> None:
        self._learnt = learnt
        self._found: dict[Key, KindCost] = {}
        kinds = [sums for key, sums in learnt.long.items() if not key.model]
        self._all = Sums(*(sum(getattr(s, name) for s in kinds) for name in Sums.__slots__))

    @property
    def known(self) -> bool:
        """Whether anything at all has been learnt."""
        return self._all.finished > 0 and self._all.compute > 0

    def __getitem__(self, key: Key) -> KindCost:
        if key not in self._found:
            self._found[key] = self._cost(key)
        return self._found[key]

    def _cost(self, key: Key) -> KindCost:
        long = self._learnt.long.get(key) or self._learnt.long.get(Key(key.kind)) or Sums()
        recent = self._learnt.recent.get(key) or self._learnt.recent.get(Key(key.kind)) or Sums()
        known = long.finished
        base = long if known >= 0.5 and long.compute > 0 else self._all
        mean = base.compute / base.finished
        weight = recent.finished + RECENT_PRIOR
        work = (recent.compute + RECENT_PRIOR * mean) / weight
        retry = max(0.0, 1 - (base.finished + 1e-9) / base.attempts) if base.attempts else 0.0
        return KindCost(
            work,
            work * (1 - retry),
            _spread(base),
            0.0 if base is self._all else known,
            min(retry, 0.5),
            _duration(base, recent),
        )


def _spread(sums: Sums) -> float:
    """The squared coefficient of variation of a job's compute-seconds."""
    attempts = max(sums.attempts, 1.0)
    mean = sums.compute / attempts
    variance = max(sums.compute_squares / attempts - mean**2, 0.0)
    return max(variance / mean**2, 0.05) if mean else 1.0


def _duration(base: Sums, recent: Sums) -> Duration:
    prior = base.log_run / base.runs if base.runs else 0.0
    weight = recent.runs + RECENT_PRIOR
    mu = (recent.log_run + RECENT_PRIOR * prior) / weight
    if base.runs < 3:
        return Duration(mu, DEFAULT_SIGMA)
    variance = max(base.log_run_squares / base.runs - prior**2, 0.0)
    return Duration(mu, max(math.sqrt(variance), MIN_SIGMA))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A time: its median, and its ninth decile. Seconds."""

    p50: float
    p90: float


def busy_share(learnt: History) -> float:
    """Compute-seconds that an engine does per second while jobs wait."""
    long = _share(learnt.busy, BUSY_PRIOR)
    return _share(learnt.busy_recent, long)


def _share(busy: Busy, prior: float) -> float:
    return (busy.compute + BUSY_PRIOR_SECONDS * prior) / (busy.engine_seconds + BUSY_PRIOR_SECONDS)


def work_per_job(learnt: History, costs: Costs, key: Key) -> float:
    """Compute-seconds of a job, its retries and its follow-ups, which are up to two generations deep."""
    return costs[key].work + sum(
        ratio * (costs[Key(kind, key.model)].work + _follow(learnt, costs, kind, key.model))
        for kind, ratio in follow_ups(learnt, key.kind)
    )


def _follow(learnt: History, costs: Costs, kind: str, model: str) -> float:
    return sum(ratio * costs[Key(child, model)].work for child, ratio in follow_ups(learnt, kind))


def follow_ups(learnt: History, kind: str) -> Iterator[tuple[str, float]]:
    """The kinds of a kind's follow-ups, and how many come per finished job."""
    parents = learnt.parents.get(kind, 0.0)
    for child, number in learnt.children.get(kind, {}).items():
        if parents > 0 and number > 0:
            yield child, number / parents


def time_to_empty(learnt: History, seen: Observation, costs: Costs, arriving: float = 0.0) -> Quantiles | None:
    """The time until nothing is open. `arriving`: compute-seconds that arrive per second.

    Where engines serve several models, the jobs that name one wait for its engines. None without an engine, or without
    anything learnt; infinite if jobs arrive faster than they are done.
    """
    whole = _time_to_empty(learnt, seen, costs, arriving)
    if whole is None or len(seen.engines) < 2:
        return whole
    pools = [_time_to_empty(learnt, seen.of_model(model), costs, 0.0) for model in seen.engines]
    spells = [whole, *(spell for spell in pools if spell)]
    return Quantiles(max(spell.p50 for spell in spells), max(spell.p90 for spell in spells))


def _time_to_empty(learnt: History, seen: Observation, costs: Costs, arriving: float) -> Quantiles | None:
    if not seen.open_jobs:
        return Quantiles(0.0, 0.0)
    if not seen.expected or not costs.known:
        return None
    slots = (learnt.slots or max(seen.running_jobs / seen.expected, 1.0)) * seen.expected
    waits = seen.waiting_jobs > 0
    first = _while_waiting(learnt, seen, costs, slots, arriving) if waits else Quantiles(0.0, 0.0)
    return _together(first, _last_jobs(learnt, seen, costs, slots))


def _together(first: Quantiles, last: Quantiles) -> Quantiles:
    """One spell after another: the medians add, the distances to the deciles add as variances."""
    middle = first.p50 + last.p50
    apart = math.hypot(first.p90 - first.p50, last.p90 - last.p50)
    return Quantiles(middle, middle + apart)


def _while_waiting(learnt: History, seen: Observation, costs: Costs, slots: float, arriving: float) -> Quantiles:
    work = _work_ahead(learnt, seen, costs, slots)
    each, back = busy_share(learnt), seen.until_back
    if each * seen.expected <= arriving:
        return Quantiles(math.inf, math.inf)
    median = _seconds_for(work, each, seen.ready, back, arriving)
    late = _seconds_for(work, each, seen.ready, [LATE * seconds for seconds in back], arriving)
    sigma = _sigma(learnt, seen.waiting, costs) if work > 0 else 0.0
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


def _work_ahead(learnt: History, seen: Observation, costs: Costs, slots: float) -> float:
    """Compute-seconds until the last waiting job has been claimed."""
    waiting = sum(group.jobs * work_per_job(learnt, costs, group.key) for group in seen.waiting)
    begun = sum(_left(costs[group.key], group) for group in seen.running)
    jobs = seen.waiting_jobs
    after = min(slots, seen.open_jobs) / jobs * sum(g.jobs * _stationary(costs[g.key]) for g in seen.waiting)
    return max(waiting + begun - after, 0.0)


def head_start(seen: Observation, costs: Costs, learnt: History) -> float:
    """Compute-seconds that running jobs need beyond what is always in flight while jobs wait: the first wait for it."""
    slots = (learnt.slots or 0.0) * seen.expected
    begun = sum(_left(costs[group.key], group) for group in seen.running)
    usual = sum(group.jobs * _stationary(costs[group.key]) for group in seen.running)
    return max(begun - usual, 0.0) if seen.running_jobs >= slots else 0.0


def work_done(seen: Observation, costs: Costs) -> dict[Key, float]:
    """Compute-seconds that running jobs have behind them, by key."""
    found: dict[Key, float] = {}
    for group in seen.running:
        cost = costs[group.key]
        done = max(group.jobs * cost.work - _left(cost, group), 0.0)  # one that takes long has not gone back
        found[group.key] = found.get(group.key, 0.0) + done
    return found


def _left(cost: KindCost, group: RunningJobs) -> float:
    """Compute-seconds left of running jobs, their retries included."""
    share = cost.duration.left(group.age) / cost.duration.mean
    return group.jobs * (cost.attempt * min(share, 3.0) + cost.work - cost.attempt)


def _stationary(cost: KindCost) -> float:
    return cost.attempt * cost.duration.stationary_left / cost.duration.mean + cost.work - cost.attempt


def _sigma(learnt: History, waiting: Sequence[WaitingJobs], costs: Costs) -> float:
    """The standard deviation of the logarithm of the time that this work takes."""
    by_key: dict[Key, float] = {}
    for group in waiting:
        by_key[group.key] = by_key.get(group.key, 0.0) + group.jobs
    total = sum(jobs * work_per_job(learnt, costs, key) for key, jobs in by_key.items())
    variance = 0.0
    for key, jobs in by_key.items():
        cost, each = costs[key], work_per_job(learnt, costs, key)
        own = cost.cv2 / jobs
        mean = cost.cv2 / cost.known if cost.known >= 1 else UNKNOWN_SPREAD**2
        variance += (jobs * each / total) ** 2 * (own + mean)
    return math.sqrt(variance + DRIFT**2)


def _last_jobs(learnt: History, seen: Observation, costs: Costs, slots: float) -> Quantiles:
    """From the claim of the last waiting job, or from now if none waits, to the last end."""
    cells = list(_cells(learnt, seen, costs, slots))
    share = learnt.load_share
    median, decile = last_end(cells, lambda jobs: 1 - share + share * min(jobs / slots, 1.0))
    return Quantiles(median, decile * math.exp(Z90 * DRIFT) if decile else 0.0)


def _cells(learnt: History, seen: Observation, costs: Costs, slots: float) -> Iterator[Cell]:
    for key, jobs, age in _in_flight_last(learnt, seen, costs, slots):
        cost = costs[key]
        yield Cell(jobs, cost.duration, age)
        yield Cell(jobs * cost.retry, cost.duration, age, cost.duration)
        for kind, ratio in follow_ups(learnt, key.kind):
            yield Cell(jobs * ratio, cost.duration, age, costs[Key(kind, key.model)].duration)


def _in_flight_last(
    learnt: History, seen: Observation, costs: Costs, slots: float
) -> Iterator[tuple[Key, float, float | None]]:
    """What is in flight when no job waits any more: kind, jobs, age."""
    if not seen.waiting_jobs:
        yield from ((group.key, group.jobs, group.age) for group in seen.running)
        return
    last = _last_of((*seen.waiting, *_to_follow(learnt, seen.waiting)), slots)
    length = sum(jobs * costs[key].duration.mean for key, jobs in last.items())
    at_once = min(slots, seen.open_jobs)
    for key, jobs in last.items():
        yield key, at_once * jobs * costs[key].duration.mean / length, None


def _to_follow(learnt: History, waiting: Sequence[WaitingJobs]) -> Iterator[WaitingJobs]:
    """The follow-ups of waiting jobs, which run after them."""
    for group in waiting:
        for kind, ratio in follow_ups(learnt, group.key.kind):
            yield WaitingJobs(Key(kind, group.key.model), group.jobs * ratio, math.inf)


def _last_of(waiting: Sequence[WaitingJobs], slots: float) -> Mapping[Key, float]:
    """The last jobs in planned order, as many as are in flight at once."""
    found: dict[Key, float] = {}
    room = slots
    for group in sorted(waiting, key=lambda each: -each.order):
        taken = min(group.jobs, room)
        if taken > 0:
            found[group.key] = found.get(group.key, 0.0) + taken
        room -= taken
    return found
