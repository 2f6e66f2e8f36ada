"""What is learnt of the queue: decayed sums of what jobs cost, how long they run, and how fast engines work.

Everything is kept twice: over days, and over the last minutes in which jobs waited all the time. Costs and durations
are those of an engine at full load: what was seen at a lower load is converted with the share of a step's time that
grows with the number of sequences (`load_share`), which is learnt, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from thothy_ai.queue.forecast.values import EndedAttempts, Key, LoadSums, Observation, RunningJobs, WaitingJobs

LONG, RECENT, ARRIVALS = 2 * 86400.0, 480.0, 900.0  # half-lives in seconds
LOAD_SHARE, LOAD_PRIOR = 0.5, 1.0  # assumed before attempts have shown it, and the spread of loads that outweighs it
MATURE = 1.5  # durations after which a full engine ends jobs of all lengths, not only the short ones
NO_RATE = 1e-7  # jobs per second
MAX_STEP = 900.0  # seconds: after a longer pause between observations, rates are not computed from it


@dataclass(frozen=True, slots=True)
class Sums:
    """Decayed sums over the ended attempts of a kind; see `EndedAttempts`."""

    finished: float = 0.0
    attempts: float = 0.0
    compute: float = 0.0
    compute_squares: float = 0.0
    runs: float = 0.0
    log_run: float = 0.0
    log_run_squares: float = 0.0

    def plus(self, ended: EndedAttempts, *, cost: float, pace: float, weight: float) -> Sums:
        """With these attempts. `cost`, `pace`: what converts compute-seconds and durations to full load."""
        shift = -math.log(pace)
        squares = ended.log_run_squares + 2 * shift * ended.log_run + ended.runs * shift**2
        return Sums(
            self.finished + weight * ended.finished,
            self.attempts + weight * ended.attempts,
            self.compute + weight * ended.compute * cost,
            self.compute_squares + weight * ended.compute_squares * cost**2,
            self.runs + weight * ended.runs,
            self.log_run + weight * (ended.log_run + ended.runs * shift),
            self.log_run_squares + weight * squares,
        )

    def faded(self, factor: float) -> Sums:
        return Sums(*(factor * getattr(self, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Busy:
    """Compute-seconds of the attempts that ended while jobs waited, and the engine-seconds that passed."""

    compute: float = 0.0
    engine_seconds: float = 0.0

    def faded(self, factor: float) -> Busy:
        return Busy(self.compute * factor, self.engine_seconds * factor)

    def plus(self, more: Busy) -> Busy:
        return Busy(self.compute + more.compute, self.engine_seconds + more.engine_seconds)


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of the past. `slots`: jobs in flight per engine while others wait. `full_since`: since when
    jobs wait. `open_since`: since when jobs are open without a break.

    `open_jobs`: by key, at the last observation. `arrivals`: jobs per second, by kind. `children`: follow-ups by their
    parents' kind and their own, beside `parents`, the finished jobs by kind. `engines`: that were ready when any last
    was. `gpus`, `on_gpu`: devices per engine when there last was one, ready or starting again (0: never), and whether
    they are GPUs. `arrived`: jobs that arrived between the last two observations, except follow-ups.
    """

    at: float = 0.0
    long: Mapping[Key, Sums] = field(default_factory=dict)
    recent: Mapping[Key, Sums] = field(default_factory=dict)
    busy: Busy = field(default_factory=Busy)
    busy_recent: Busy = field(default_factory=Busy)
    load: LoadSums = field(default_factory=LoadSums)
    slots: float | None = None
    full_since: float | None = None
    open_since: float | None = None
    engines: int = 0
    gpus: float = 0.0
    on_gpu: bool = False
    arrived: float = 0.0
    open_jobs: Mapping[Key, float] = field(default_factory=dict)
    arrivals: Mapping[Key, float] = field(default_factory=dict)
    parents: Mapping[str, float] = field(default_factory=dict)
    children: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def load_share(self) -> float:
        """The share of a full engine's step time that grows with the number of its sequences, from 0 to 1.

        From the regression of the time per token on the number of sequences; near `LOAD_SHARE` while it says little.
        """
        load, slots = self.load, self.slots
        if not slots or load.n < 2:
            return LOAD_SHARE
        spread = load.xx - load.x**2 / load.n
        if spread <= 0.01 * load.xx:
            return LOAD_SHARE
        slope = (load.xy - load.x * load.y / load.n) / spread
        base = (load.y - slope * load.x) / load.n
        at_full = base + slope * slots
        found = min(max(slope * slots / at_full, 0.05), 0.95) if at_full > 0 else LOAD_SHARE
        weight = spread / slots**2
        return (LOAD_PRIOR * LOAD_SHARE + weight * found) / (LOAD_PRIOR + weight)

    def pace(self, filled: float) -> float:
        """How long a step takes on an engine that is `filled` (0 to 1), relative to a full one."""
        return 1 - self.load_share + self.load_share * min(filled, 1.0)


def learn(history: History, seen: Observation) -> History:
    """What is known after one more observation. One that is not later than the last teaches nothing."""
    seconds = seen.at - history.at
    if seconds <= 0:  # a clock that was set back
        return replace(history, at=seen.at, full_since=None, arrived=0.0)
    if history.at == 0 or seconds > MAX_STEP:  # what ended meanwhile is known, at which load is not
        return _with_state(_with_ended(history, seen, seconds, full=False), seen, full=False)
    # Jobs have waited since the last observation, and engines neither joined, left nor started again.
    full = (
        history.full_since is not None
        and seen.waiting_jobs > 0
        and not seen.paused
        and seen.ready == history.engines
        and seen.ready > 0
        and (seen.joined or 0.0) <= history.at
    )
    now, before = _by_kind(open_by_key(seen)), _by_kind(history.open_jobs)
    left = _by_kind({key: each.left for key, each in seen.ended.items()})
    new = {
        key: max(now.get(key, 0.0) - before.get(key, 0.0) + left.get(key, 0.0), 0.0) for key in {*now, *before, *left}
    }
    follow_ups = sum(sum(each.children.values()) for each in seen.ended.values())
    factor = 0.5 ** (seconds / ARRIVALS)
    rates = {
        key: factor * history.arrivals.get(key, 0.0) + (1 - factor) * new.get(key, 0.0) / seconds
        for key in {*history.arrivals, *new}
    }
    learnt = replace(
        _with_ended(history, seen, seconds, full=full),
        arrivals={key: rate for key, rate in rates.items() if rate > NO_RATE},
        arrived=max(sum(new.values()) - follow_ups, 0.0),
    )
    return _with_state(learnt, seen, full=full)


def open_by_key(seen: Observation) -> dict[Key, float]:
    """The open jobs of an observation, by key."""
    found: dict[Key, float] = {}
    groups: tuple[WaitingJobs | RunningJobs, ...] = (*seen.waiting, *seen.running)
    for group in groups:
        found[group.key] = found.get(group.key, 0.0) + group.jobs
    return found


def _with_state(history: History, seen: Observation, *, full: bool) -> History:
    """With what the next observation is compared to."""
    waits = seen.waiting_jobs > 0 and seen.ready > 0 and not seen.paused
    since = history.full_since if full and history.full_since is not None else seen.at
    slots = history.slots or (float(seen.capacity) or None)
    if full and seen.running_jobs:
        now = seen.running_jobs / seen.ready
        slots = now if history.slots is None else history.slots + 0.1 * (now - history.slots)
    return replace(
        history,
        at=seen.at,
        full_since=since if waits else None,
        open_since=(history.open_since or seen.at) if seen.open_jobs else None,
        engines=seen.ready or history.engines,
        gpus=seen.gpus if seen.expected else history.gpus,
        on_gpu=seen.on_gpu if seen.expected else history.on_gpu,
        open_jobs=open_by_key(seen),
        slots=slots,
    )


def _with_ended(history: History, seen: Observation, seconds: float, *, full: bool) -> History:
    """With the attempts that ended since the last observation."""
    filled = 1.0 if full else _filled(history, seen)
    pace = history.pace(filled)
    days, minutes = 0.5 ** (seconds / LONG), 0.5 ** (seconds / RECENT)
    mature = full and seen.at - (history.full_since or seen.at) > MATURE * _typical_run(history)
    weight = 1.0 if full else max(filled, 0.1)
    busy, busy_recent = history.busy, history.busy_recent.faded(minutes)
    if mature:
        compute = sum(each.compute for each in seen.ended.values())
        done = Busy(compute, seconds * seen.ready)
        busy, busy_recent = busy.faded(days).plus(done), busy_recent.plus(done)
    parents = {kind: number * days for kind, number in history.parents.items()}
    children = {parent: {kind: n * days for kind, n in each.items()} for parent, each in history.children.items()}
    for key, each in seen.ended.items():
        parents[key.kind] = parents.get(key.kind, 0.0) + each.finished
        for kind, number in each.children.items():
            under = children.setdefault(key.kind, {})
            under[kind] = under.get(kind, 0.0) + number
    return replace(
        history,
        long=_added(history.long, seen.ended, days, filled / pace, pace, weight),
        recent=_added(history.recent, seen.ended if mature else {}, minutes, 1.0, 1.0, 1.0),
        busy=busy,
        busy_recent=busy_recent,
        load=LoadSums(*(days * getattr(history.load, name) + getattr(seen.load, name) for name in LoadSums.__slots__)),
        parents=parents,
        children=children,
    )


def _filled(history: History, seen: Observation) -> float:
    """How full the engines are, from 0 to 1: the running jobs over those of full engines."""
    if not history.slots or not seen.ready:
        return 1.0
    before = sum(history.open_jobs.values())
    running = max(seen.running_jobs, min(before, history.slots * seen.ready))
    return min(1.0, max(running, 1.0) / (history.slots * seen.ready))


def _typical_run(history: History) -> float:
    """A duration between the mean and the longest, over all kinds: seconds at full load."""
    kinds = [sums for key, sums in history.long.items() if not key.model]
    runs = sum(sums.runs for sums in kinds)
    return math.exp(sum(sums.log_run for sums in kinds) / runs) if runs else 0.0


def _added(
    sums: Mapping[Key, Sums],
    ended: Mapping[Key, EndedAttempts],
    factor: float,
    cost: float,
    pace: float,
    weight: float,
) -> dict[Key, Sums]:
    """Decayed sums with these attempts, each under its kind alone and under its kind and model."""
    found = {key: value.faded(factor) for key, value in sums.items()}
    for key, each in ended.items():
        for under in {key, Key(key.kind)}:
            found[under] = found.get(under, Sums()).plus(each, cost=cost, pace=pace, weight=weight)
    return {key: value for key, value in found.items() if value.attempts > 1e-3}


def _by_kind(jobs: Mapping[Key, float]) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for key, number in jobs.items():
        found[Key(key.kind)] = found.get(Key(key.kind), 0.0) + number
    return found
