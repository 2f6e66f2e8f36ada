"""A simulated service: engines that share their time among sequences, a queue in planned order, arrivals and faults.

A step over n sequences takes `base + each * n` seconds and gives each one token. Prompts take time of their own, which
stalls the others. An attempt is billed its share of each step, as the real engine does.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from thothy_ai.queue.forecast.values import EndedAttempts, Key, LoadSums, Observation, RunningJobs, WaitingJobs


@dataclass(frozen=True)
class Kind:
    """A job kind. Output tokens are log-normal around `tokens`; `batch`: how much batches differ in that."""

    name: str
    tokens: float
    sigma: float
    batch: float
    rejected: float
    prompt: float  # seconds at one per token of a step's base time
    children: tuple[str, float] | None = None  # kind and mean number of follow-ups


@dataclass(frozen=True)
class Machine:
    """An engine. Seconds per step, and sequences at once."""

    base: float
    each: float
    slots: int
    engines: int

    def step(self, sequences: int) -> float:
        """The seconds of a step."""
        return self.base + self.each * sequences


class Job(NamedTuple):
    """A job, ordered as it is planned."""

    order: float
    number: int
    kind: str
    shift: float  # of the logarithm of its output's length: its batch's
    prompt: float  # seconds; siblings after the first find it in the cache
    tries: int
    deadline: float | None


class RunningJob(NamedTuple):
    """A job on an engine, until the engine's tokens per sequence reach `end`."""

    end: float
    job: Job
    claimed: float
    billed_from: float
    tokens: float


@dataclass
class EngineRun:
    """One engine. `tokens`: that each sequence has got since the start; `share`: seconds billed to each."""

    speed: float = 1.0
    up: bool = True
    slow_until: float = 0.0
    tokens: float = 0.0
    share: float = 0.0
    stall: float = 0.0
    running: list[RunningJob] = field(default_factory=list)

    def copy(self) -> EngineRun:
        """An independent copy."""
        return replace(self, running=list(self.running))

    def rate(self, machine: Machine, now: float) -> float:
        """Seconds per token and sequence."""
        warm = 0.5 if now < self.slow_until else 1.0
        return machine.step(len(self.running)) / (self.speed * warm)

    def advance(self, machine: Machine, now: float, seconds: float) -> None:
        """Let time pass."""
        stalled = min(self.stall, seconds)
        self.stall -= stalled
        if self.running and seconds > stalled:
            self.tokens += (seconds - stalled) / self.rate(machine, now)
            self.share += (seconds - stalled) / len(self.running)

    def next_end(self, machine: Machine, now: float) -> float:
        """Seconds until the next job ends."""
        if not self.running or not self.up:
            return math.inf
        return self.stall + max(self.running[0].end - self.tokens, 0.0) * self.rate(machine, now)


class Fault(NamedTuple):
    """At a time, an engine goes away (`up` false) or comes back, or its speed changes."""

    at: float
    engine: int
    up: bool | None
    speed: float = 1.0


@dataclass
class World:
    """The service at a moment. `collect`: whether what ends is kept for the next observation."""

    machine: Machine
    kinds: Mapping[str, Kind]
    rng: random.Random
    faults: Sequence[Fault]
    now: float = 0.0
    engines: list[EngineRun] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    next_fault: int = 0
    numbers: int = 0
    collect: bool = True
    ended: list[tuple[str, float, float, float, str, int]] = field(default_factory=list)

    def fork(self, seed: int) -> World:
        """A copy with other chances from now on, and without observations."""
        return replace(
            self,
            rng=random.Random(seed),
            engines=[engine.copy() for engine in self.engines],
            waiting=list(self.waiting),
            collect=False,
            ended=[],
        )

    @property
    def open_jobs(self) -> int:
        """Jobs that wait or run."""
        return len(self.waiting) + sum(len(engine.running) for engine in self.engines)

    def add(self, job: Job) -> None:
        """A job arrives."""
        self.numbers += 1
        heapq.heappush(self.waiting, job._replace(number=self.numbers))
        self._claim()

    def until(self, moment: float) -> None:
        """Run until then."""
        while self._step(moment):
            pass

    def until_empty(self) -> float:
        """Run without arrivals until nothing is open; the seconds that takes."""
        begun = self.now
        while self.open_jobs and self.now < begun + 7 * 86400:
            self._step(math.inf)
        return self.now - begun

    def _step(self, moment: float) -> bool:
        """Until the next event; whether it came before `moment`."""
        fault = self.faults[self.next_fault].at if self.next_fault < len(self.faults) else math.inf
        ends = [self.now + engine.next_end(self.machine, self.now) for engine in self.engines]
        warm = [e.slow_until for e in self.engines if e.up and e.slow_until > self.now]
        at = min(moment, fault, *ends, *warm)
        for engine in self.engines:
            if engine.up:
                engine.advance(self.machine, self.now, at - self.now)
        self.now = at
        if at == moment:
            return False
        if at == fault:
            self._strike(self.faults[self.next_fault])
            self.next_fault += 1
        else:
            for engine, end in zip(self.engines, ends, strict=True):
                if end == at:
                    self._end(engine)
        self._claim()
        return True

    def _strike(self, fault: Fault) -> None:
        engine = self.engines[fault.engine]
        if fault.up is None:
            engine.speed = fault.speed
        elif fault.up:
            engine.up, engine.slow_until = True, self.now + 60
        else:
            for attempt in engine.running:
                self._note(engine, attempt, "lost", 0)
                heapq.heappush(self.waiting, attempt.job)
            engine.up, engine.running, engine.stall = False, [], 0.0

    def _claim(self) -> None:
        ready = [engine for engine in self.engines if engine.up]
        while self.waiting and ready:
            engine = min(ready, key=lambda each: len(each.running))
            if len(engine.running) >= self.machine.slots:
                return
            self._start(engine, heapq.heappop(self.waiting))

    def _start(self, engine: EngineRun, job: Job) -> None:
        kind = self.kinds[job.kind]
        tokens = min(math.exp(math.log(kind.tokens) + job.shift + kind.sigma * self.rng.gauss(0, 1)), 4 * kind.tokens)
        engine.stall += job.prompt
        heapq.heappush(engine.running, RunningJob(engine.tokens + tokens, job, self.now, engine.share, tokens))

    def _end(self, engine: EngineRun) -> None:
        attempt = heapq.heappop(engine.running)
        kind, job = self.kinds[attempt.job.kind], attempt.job
        if self.rng.random() < kind.rejected and job.tries < 2:
            self._note(engine, attempt, "rejected", 0)
            heapq.heappush(self.waiting, job._replace(tries=job.tries + 1, prompt=0.0))
            return
        children = self._children(kind, job)
        self._note(engine, attempt, "succeeded", children)

    def _children(self, kind: Kind, job: Job) -> int:
        if kind.children is None:
            return 0
        name, mean = kind.children
        number = int(mean) + (self.rng.random() < mean % 1)
        order = min(job.deadline or math.inf, self.now // 600 * 600 + 86400)
        for _ in range(number):
            self.numbers += 1
            heapq.heappush(self.waiting, Job(order, self.numbers, name, job.shift, 0.0, 0, job.deadline))
        return number

    def _note(self, engine: EngineRun, attempt: RunningJob, outcome: str, children: int) -> None:
        if self.collect:
            billed = engine.share - attempt.billed_from + attempt.job.prompt
            run = self.now - attempt.claimed
            self.ended.append((attempt.job.kind, run, billed, attempt.tokens, outcome, children))


def observe(world: World) -> Observation:
    """What the service's statements would return now; what ended is taken."""
    ended, world.ended = world.ended, []
    return Observation(
        at=world.now,
        waiting=tuple(_waiting(world)),
        running=tuple(_running(world)),
        engines={"": up} if (up := sum(engine.up for engine in world.engines)) else {},
        ended=_ended(world, ended),
        load=_load(ended),
        capacity=world.machine.slots,
    )


def _waiting(world: World) -> list[WaitingJobs]:
    found: dict[tuple[str, float, float | None], int] = {}
    for job in world.waiting:
        group = (job.kind, job.order // 600, None if job.deadline is None else job.deadline - world.now)
        found[group] = found.get(group, 0) + 1
    return [WaitingJobs(Key(kind), jobs, order, deadline) for (kind, order, deadline), jobs in found.items()]


def _running(world: World) -> list[RunningJobs]:
    found: dict[tuple[str, int], list[float]] = {}
    for engine in world.engines:
        for attempt in engine.running:
            age = world.now - attempt.claimed
            found.setdefault((attempt.job.kind, int(math.log2(max(age, 0.1)) * 2)), []).append(age)
    return [RunningJobs(Key(kind), len(ages), sum(ages) / len(ages)) for (kind, _), ages in found.items()]


def _ended(world: World, rows: Sequence[tuple[str, float, float, float, str, int]]) -> dict[Key, EndedAttempts]:
    found = {}
    for kind in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == kind]
        ran = [row for row in mine if row[4] != "lost"]
        finished = sum(row[4] == "succeeded" for row in mine)
        child = world.kinds[kind].children
        found[Key(kind)] = EndedAttempts(
            finished=finished,
            left=finished,
            attempts=len(ran),
            compute=sum(row[2] for row in mine),
            compute_squares=sum(row[2] ** 2 for row in mine),
            runs=len(ran),
            log_run=sum(math.log(max(row[1], 1e-3)) for row in ran),
            log_run_squares=sum(math.log(max(row[1], 1e-3)) ** 2 for row in ran),
            children={child[0]: sum(row[5] for row in mine)} if child else {},
        )
    return found


def _load(rows: Sequence[tuple[str, float, float, float, str, int]]) -> LoadSums:
    pairs = [(row[1] / row[2], row[1] / row[3]) for row in rows if row[4] != "lost" and row[2] > 0]
    return LoadSums(
        len(pairs),
        sum(x for x, _ in pairs),
        sum(y for _, y in pairs),
        sum(x * x for x, _ in pairs),
        sum(x * y for x, y in pairs),
    )
