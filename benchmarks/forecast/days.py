"""Simulated days of a content team: bursts, trickles, siblings, deadlines, engines that are lost and come back."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.forecast.world import EngineRun, Fault, Job, Kind, Machine, World, observe
from thothy_ai.queue.forecast.estimate import Costs, Quantiles, time_to_empty
from thothy_ai.queue.forecast.learning import History, learn
from thothy_ai.queue.forecast.outlook import with_arrivals
from thothy_ai.queue.forecast.values import Observation

DAY, HOUR = 86400.0, 3600.0
TICK = 30.0
KINDS = {
    kind.name: kind
    for kind in (
        Kind("hook", 40, 0.35, 0.08, 0.04, 60),
        Kind("summary", 120, 0.35, 0.10, 0.06, 900),
        Kind("translation", 300, 0.45, 0.15, 0.10, 300),
        Kind("section", 600, 0.40, 0.12, 0.15, 1200),
        Kind("report", 350, 0.30, 0.10, 0.05, 1500, ("translation", 1.5)),
    )
}


def _machine(tokens: float, slots: int, share: float, engines: int) -> Machine:
    """An engine of so many tokens per second at full load; `share` of a step's time grows with the sequences."""
    step = slots / tokens
    return Machine(step * (1 - share), step * share / slots, slots, engines)


# Slower than a GPU, so that a day has tens of thousands of jobs; as many sequences at once, and drains as long.
MACHINES = (
    _machine(150, 16, 0.8, 1),
    _machine(120, 64, 0.5, 2),
    _machine(250, 128, 0.75, 1),
    _machine(60, 48, 0.3, 4),
)
PROMPT_TOKEN = 0.05  # of the time that a sequence's token takes, `each`


@dataclass(frozen=True)
class Sample:
    """A forecast and what came, in seconds. `truth`: until what stood was done; `waited`: whether jobs waited.

    `arriving`: the forecast with arrivals at the recent rate; `emptied`: when the queue was empty in fact.
    """

    at: float
    p50: float
    p90: float
    truth: float
    waited: bool
    arriving: Quantiles | None
    emptied: float | None = None


@dataclass(frozen=True)
class Arrival:
    """Jobs that arrive together."""

    at: float
    jobs: tuple[Job, ...]


def simulate(seed: int, days: float = 1.0, every: float = 240.0, load: float = 0.5) -> list[Sample]:
    """Forecasts about every so many seconds while jobs are open, each with what came."""
    rng = random.Random(seed)
    machine = MACHINES[seed % len(MACHINES)]
    world = World(machine, KINDS, rng, _faults(rng, machine, days))
    world.engines = [EngineRun() for _ in range(machine.engines)]
    arrivals = deque(_arrivals(rng, machine, days, load))
    history, next_sample, ended, open_now = History(), 0.0, list[Sample](), list[Sample]()
    for number in range(1, int(days * DAY / TICK)):
        tick = number * TICK
        _let_arrive(world, arrivals, tick)
        seen = observe(world)
        history = learn(history, seen)
        if not seen.open_jobs:
            ended += [replace(sample, emptied=tick - sample.at) for sample in open_now]
            open_now.clear()
        elif tick >= next_sample:
            next_sample = tick + every * rng.uniform(0.5, 1.5)
            open_now += _sampled(history, seen, world)
    return ended + open_now


def _let_arrive(world: World, arrivals: deque[Arrival], until: float) -> None:
    while arrivals and arrivals[0].at <= until:
        arrival = arrivals.popleft()
        world.until(arrival.at)
        for job in arrival.jobs:
            world.add(job)
    world.until(until)


def _sampled(history: History, seen: Observation, world: World) -> Iterator[Sample]:
    costs = Costs(history)
    time = time_to_empty(seen, costs)
    if time is not None:
        truth = world.fork(world.rng.randrange(2**31)).until_empty()
        yield Sample(seen.at, time.p50, time.p90, truth, seen.waiting_jobs > 0, with_arrivals(seen, costs))


def job_seconds(machine: Machine, kind: Kind) -> float:
    """The mean compute-seconds of a job at full load."""
    attempts = 1 + kind.rejected
    own = kind.tokens * math.exp(kind.sigma**2 / 2) * machine.step(machine.slots) / machine.slots * attempts
    own += kind.prompt * PROMPT_TOKEN * machine.each
    if kind.children:
        own += kind.children[1] * job_seconds(machine, KINDS[kind.children[0]])
    return own


def _arrivals(rng: random.Random, machine: Machine, days: float, load: float) -> Iterator[Arrival]:
    capacity = DAY * machine.engines
    found = []
    for day in range(math.ceil(days)):
        bursts = [rng.uniform(5, 20) * HOUR for _ in range(rng.randint(4, 9))]
        shares = [rng.expovariate(1) for _ in bursts]
        for at, share in zip(bursts, shares, strict=True):
            work = 0.8 * load * capacity * share / sum(shares)
            found += _burst(rng, machine, day * DAY + at, work)
        found += _trickle(rng, machine, day * DAY, 0.2 * load * capacity)
    yield from sorted(found, key=lambda arrival: arrival.at)


def _burst(rng: random.Random, machine: Machine, at: float, work: float) -> list[Arrival]:
    """A batch of one to three kinds, with siblings, enqueued over up to 20 minutes."""
    kinds = rng.sample(list(KINDS.values()), rng.randint(1, 3))
    deadline = at + rng.uniform(2, 10) * HOUR if rng.random() < 0.4 else None
    priority = rng.choice((0, 0, 0, 0, 1))
    spread = rng.choice((0.0, 0.0, 300.0, 1200.0))
    shifts = {kind.name: rng.gauss(0, kind.batch) for kind in kinds}
    found = []
    for kind in kinds:
        number = max(1, round(work / len(kinds) / job_seconds(machine, kind)))
        siblings = rng.choice((1, 4, 10))
        for start in range(0, number, 50):
            moment = at + spread * start / number
            order = min(deadline or math.inf, moment // 600 * 600 + DAY) - priority * DAY
            jobs = tuple(
                _job(machine, kind, order, shifts[kind.name], n % siblings == 0, deadline)
                for n in range(start, min(start + 50, number))
            )
            found.append(Arrival(moment, jobs))
    return found


def _trickle(rng: random.Random, machine: Machine, begin: float, work: float) -> list[Arrival]:
    """Single jobs over the day, most at its middle."""
    found, spent = [], 0.0
    kinds = list(KINDS.values())
    while spent < work:
        kind = rng.choice(kinds)
        at = begin + rng.triangular(6, 22, 13) * HOUR
        spent += job_seconds(machine, kind)
        order = at // 600 * 600 + DAY
        found.append(Arrival(at, (_job(machine, kind, order, rng.gauss(0, kind.batch), True, None),)))
    return found


def _job(machine: Machine, kind: Kind, order: float, shift: float, first: bool, deadline: float | None) -> Job:
    prompt = kind.prompt * PROMPT_TOKEN * machine.each if first else 0.0
    return Job(order, 0, kind.name, shift, prompt, 0, deadline)


def _faults(rng: random.Random, machine: Machine, days: float) -> list[Fault]:
    found = []
    for engine in range(machine.engines):
        speed = 1.0
        for at in range(0, math.ceil(days * DAY), 1800):
            speed = 1 + 0.8 * (speed - 1) + rng.gauss(0, 0.03)
            found.append(Fault(at, engine, None, speed))
        for day in range(math.ceil(days)):
            if rng.random() < 0.4:
                lost = day * DAY + rng.uniform(5, 22) * HOUR
                found += [Fault(lost, engine, False), Fault(lost + rng.uniform(20, 900), engine, True)]
    return sorted(found, key=lambda fault: fault.at)
