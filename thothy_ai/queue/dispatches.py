"""`Dispatches`: the transition queued -> dispatched, in Postgres: reads which engines live and what is due, has the
`JobRouter` place it, and records it. The caller publishes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from thothy_ai.queue.hints import Hint, ListLengths
from thothy_ai.queue.routing import DueJob, EngineLoad, JobRouter, RunningEngine
from thothy_ai.settings import Settings

ANSWER_SECONDS = 5.0  # a worker's wait for its engine's answer before it reports its presence
SILENT_HEARTBEATS = 2  # of a worker that counts as lost, each with an answer that did not come
Ask = Callable[..., Sequence[Any]]  # the rows of a statement by its name, with its parameters


class Dispatch(NamedTuple):
    """The jobs dispatched to one engine, in planned order."""

    engine: str
    ordinary: list[Hint]
    urgent: list[Hint]

    @property
    def hints(self) -> list[Hint]:
        return self.ordinary + self.urgent


class Dispatches:
    """Dispatches through `ask`, each statement in a transaction of its own."""

    def __init__(self, settings: Settings, ask: Ask) -> None:
        self._settings = settings
        self._ask = ask
        self._router = JobRouter(settings.dispatch_min_depth)

    def recall_sources(self) -> None:
        """Learn the sources' engines from dispatched and running jobs, which another dispatcher sent."""
        for row in self._ask("queue/sources"):
            self._router.sources.remember(row.source_key, row.engine_name)

    def engines(self) -> list[RunningEngine]:
        rows = self._ask("queue/engines", worker_seconds=worker_silence(self._settings))
        return [
            RunningEngine(
                row.name,
                frozenset(row.serves),
                row.capacity or self._settings.worker_in_flight,
                row.running,
                row.lowest,
                ready=row.ready and row.staffed,
            )
            for row in rows
        ]

    def dispatch(
        self, engines: Iterable[RunningEngine], depths: Mapping[str, ListLengths], max_urgent: int
    ) -> Iterator[Dispatch]:
        """Dispatch as many jobs as these engines have room for; yields each engine's jobs, to publish before the
        next.
        """
        loads = self._router.loads(engines, depths, max_urgent)
        if len(loads) == 1:
            yield from self._dispatch_next(*loads.values())
            return
        # The next jobs, as many as the engines that may run them have room for; of urgent jobs, too.
        if not (any_limit := _room(loads.values())):
            return
        rows = self._ask("queue/due", any_limit=any_limit, **_wanted(loads.values()))
        jobs = [DueJob(row.id, row.model, row.priority, row.source_key) for row in rows]
        for engine, routed in self._router.route(jobs, loads).items():
            ids = routed.ordinary + routed.urgent
            numbers = {row.id: row.dispatch_no for row in self._ask("queue/dispatch", ids=ids, engine=engine)}
            if numbers:
                yield Dispatch(engine, _hints(routed.ordinary, numbers), _hints(routed.urgent, numbers))

    def _dispatch_next(self, load: EngineLoad) -> Iterator[Dispatch]:
        """With one engine there is nothing to route: a single statement chooses and dispatches the jobs."""
        name = load.engine.name
        if not (limit := _room([load])):
            return
        rows = self._ask(
            "queue/dispatch_next",
            engine=name,
            any_limit=limit,
            **_wanted([load]),
            lowest=load.engine.lowest,
            places=load.places,
            urgent_places=load.urgent_places,
        )
        for row in rows:
            self._router.sources.remember(row.source_key, name)
        if rows:
            ordinary = [Hint(row.id, row.dispatch_no) for row in rows if not row.urgent]
            yield Dispatch(name, ordinary, [Hint(row.id, row.dispatch_no) for row in rows if row.urgent])

    def hand_over(
        self, engines: Sequence[RunningEngine], depths: Mapping[str, ListLengths], fed: Collection[str]
    ) -> Iterator[Dispatch]:
        """Give an idle engine, if no job is due, jobs from the longest list, up to half of its capacity.

        At the end of a drain all jobs are in the engines' lists; this lets the engines finish at about the same time.
        An engine that runs nothing gets one job first.
        """
        donors = sorted(engines, key=lambda engine: depths[engine.name].ordinary, reverse=True)
        for engine in engines:
            free = min(engine.capacity - engine.running, max(1, engine.running))
            if not engine.ready or engine.name in fed or any(depths[engine.name]) or free <= 0:
                continue
            others = [other.name for other in donors if other is not engine and depths[other.name].ordinary]
            serves = sorted(engine.serves)
            asked = (
                self._ask("queue/hand_over", donor=other, engine=engine.name, serves=serves, limit=free)
                for other in others
            )
            if rows := next(filter(None, asked), ()):
                for row in rows:
                    self._router.sources.remember(row.source_key, engine.name)
                yield Dispatch(engine.name, [Hint(row.id, row.dispatch_no) for row in rows], [])


def worker_silence(settings: Settings) -> float:
    """Seconds after which an engine's worker counts as lost: it has not shown that it reaches the engine."""
    return SILENT_HEARTBEATS * (settings.heartbeat_seconds + ANSWER_SECONDS)


def _wanted(loads: Iterable[EngineLoad]) -> dict[str, list[Any]]:
    """Which named jobs are asked for: of all names together that the same engines serve, no more than these have room
    for; where they have room only for urgent jobs, no others.
    """
    teams = defaultdict[str, list[EngineLoad]](list)  # by the name in jobs' requests
    for load in loads:
        for name in load.engine.serves:
            teams[name].append(load)
    numbers: dict[tuple[str, ...], int] = {}
    rows = []
    for name, team in sorted(teams.items()):
        number = numbers.setdefault(tuple(load.engine.name for load in team), len(numbers))
        lowest = [load.engine.lowest for load in team if load.engine.lowest is not None]
        full = all(load.places <= 0 for load in team)
        rows.append((name, number, _room(team), min(lowest) if full and lowest else None))
    return {key: [row[at] for row in rows] for at, key in enumerate(("models", "teams", "limits", "floors"))}


def _room(loads: Iterable[EngineLoad]) -> int:
    found = list(loads)
    places = sum(max(load.places, 0) for load in found)
    urgent = sum(max(load.urgent_places, 0) for load in found if load.engine.lowest is not None)
    return max(places, urgent)


def _hints(ids: Iterable[UUID], numbers: Mapping[UUID, int]) -> list[Hint]:
    return [Hint(job_id, numbers[job_id]) for job_id in ids if job_id in numbers]
