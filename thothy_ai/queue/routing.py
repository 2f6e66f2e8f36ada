"""`JobRouter`: which engine each of the next jobs goes to. Pure: what it knows of engines and jobs is given to it.

1. model     An engine may run a job that names no model, or a model, adapter or alias that it serves.
2. room      Its list takes twice as many jobs as it runs, urgent ones have places of their own. Jobs are placed in
             planned order: one without a place is passed over, and holds up none behind it.
3. source    A job goes where its source went last: that engine has the source's KV. For such jobs a list may grow
             by a quarter beyond its room, so that siblings stay together; a source that has more continues elsewhere.
4. load      Otherwise the engine with the fewest jobs for its capacity, waiting ones included.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from thothy_ai.queue.hints import ListLengths

MAX_SOURCES = 32_768  # remembered: more than the prefix caches of some engines hold
DEPTH_FACTOR = 2  # jobs that wait for an engine per job that it runs
SIBLINGS_SHARE = 4  # a list has one place for siblings for every four others


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A running engine. `serves`: the models and aliases that jobs may name to run on it.

    `lowest`: the lowest priority of a job that is dispatched to it or running on it; None if there is none. `ready`: it
    accepts jobs, and a worker takes them.
    """

    name: str
    serves: frozenset[str] = frozenset()
    capacity: int = 0
    running: int = 0
    lowest: int | None = None
    ready: bool = True


class DueJob(NamedTuple):
    """A job that may be dispatched now."""

    id: UUID
    model: str | None
    priority: int
    source_key: str


@dataclass(slots=True)
class EngineLoad:
    """What an engine has, and has room for, during one round of placing."""

    engine: RunningEngine
    jobs: int  # that run on it or wait for it
    places: int
    urgent_places: int
    sibling_places: int  # beyond `places`

    @property
    def per_capacity(self) -> float:
        """Jobs per sequence that it can run at once."""
        return self.jobs / max(self.engine.capacity, 1)

    def may_run(self, job: DueJob) -> bool:
        """Whether it serves the job's model."""
        return job.model is None or job.model in self.engine.serves

    def urgent(self, job: DueJob) -> bool:
        """Whether the job would wait there behind one of lower priority, and therefore must not."""
        return self.engine.lowest is not None and job.priority > self.engine.lowest

    def takes(self, job: DueJob, *, sibling: bool) -> bool:
        """Whether there is a place for it."""
        if self.urgent(job):
            return self.urgent_places > 0
        return self.places > (-self.sibling_places if sibling else 0)

    def place(self, job: DueJob) -> None:
        self.jobs += 1
        if self.urgent(job):
            self.urgent_places -= 1
        else:
            self.places -= 1


@dataclass(slots=True)
class RoutedJobs:
    """What goes to one engine, in planned order: ordinary jobs, and urgent ones."""

    ordinary: list[UUID]
    urgent: list[UUID]


class Sources:
    """Where each source's jobs went last, for the sources that were used most recently."""

    def __init__(self, limit: int = MAX_SOURCES) -> None:
        self._limit = limit
        self._engines: OrderedDict[str, str] = OrderedDict()

    def engine(self, source_key: str) -> str | None:
        """The engine of a source's last job; None if it is not remembered."""
        return self._engines.get(source_key)

    def remember(self, source_key: str, engine: str) -> None:
        """A job of this source goes to this engine."""
        self._engines[source_key] = engine
        self._engines.move_to_end(source_key)
        if len(self._engines) > self._limit:
            self._engines.popitem(last=False)


class JobRouter:
    """Places jobs. Owns the memory of sources."""

    def __init__(self, min_depth: int) -> None:
        self._min_depth = min_depth
        self.sources = Sources()

    def loads(
        self, engines: Iterable[RunningEngine], depths: Mapping[str, ListLengths], max_urgent: int
    ) -> dict[str, EngineLoad]:
        """What each engine that accepts jobs has room for, by name."""
        ready = [engine for engine in engines if engine.ready]
        loads: dict[str, EngineLoad] = {}
        for engine in ready:
            depth = depths[engine.name]
            target = max(self._min_depth, DEPTH_FACTOR * engine.running)
            loads[engine.name] = EngineLoad(
                engine,
                jobs=engine.running + depth.ordinary + depth.urgent,
                places=target - depth.ordinary,
                urgent_places=max_urgent - depth.urgent,
                sibling_places=target // SIBLINGS_SHARE if len(ready) > 1 else 0,  # of one, none goes elsewhere
            )
        return loads

    def route(self, jobs: Sequence[DueJob], loads: Mapping[str, EngineLoad]) -> dict[str, RoutedJobs]:
        """Where these jobs go, which are in planned order. Jobs for which no engine has room are left out."""
        routed: dict[str, RoutedJobs] = {}
        for job in jobs:
            last = self.sources.engine(job.source_key)
            load = None if last is None else loads.get(last)
            if load is None or not (load.may_run(job) and load.takes(job, sibling=True)):
                able = (each for each in loads.values() if each.may_run(job) and each.takes(job, sibling=False))
                load = min(able, key=lambda each: each.per_capacity, default=None)
            if load is not None:
                name = load.engine.name
                to = routed.setdefault(name, RoutedJobs([], []))
                (to.urgent if load.urgent(job) else to.ordinary).append(job.id)
                load.place(job)
                self.sources.remember(job.source_key, name)
        return routed
