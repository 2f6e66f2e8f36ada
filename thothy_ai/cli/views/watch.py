"""Watches a queue drain, and says what it waits for. Used by `thothy drain` and the demo."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from rich.console import Console
from sqlalchemy import Engine

from thothy_ai.admin.progress import Obstacles, Progress, obstacles, progress
from thothy_ai.cli.views import times
from thothy_ai.cli.views.drain import display_on
from thothy_ai.cli.views.tables import count, printable
from thothy_ai.queue.forecast.outlook import Forecast
from thothy_ai.queue.forecast.store import current

POLL_SECONDS = 0.5
OBSTACLE_SECONDS = 5.0  # between two looks for what keeps the queue from draining
FORECAST_SECONDS = 2.0  # between two readings of the forecast
MODEL_SECONDS = 60.0  # for an engine to appear that serves the only jobs left
RATE_WINDOW = 60.0  # seconds; a longer window would mix kinds that take different times
MIN_RATE_SECONDS, MIN_RATE_JOBS = 5.0, 5  # fewer say nothing about the rest


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """What was seen: since when the drain's work was due, the jobs still open, and those finished while watching.

    `later`: jobs that are not due yet and were not waited for; `next_due`: when the first of them is. `stranded`: every
    open job names a model that no engine serves, and none appeared in time.
    """

    since: datetime
    open: int
    finished: int
    later: int = 0
    next_due: datetime | None = None
    obstacles: Obstacles | None = None
    stranded: bool = False


class Rate:
    """Jobs per second over the last `RATE_WINDOW` seconds, from the first finished job on."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def update(self, now: float, finished: int) -> float | None:
        """Add a sample of the finished jobs at `now` (monotonic seconds). None while there are too few to tell."""
        if not finished:
            return None
        self._points.append((now, finished))
        while now - self._points[0][0] > RATE_WINDOW:
            self._points.popleft()
        start, first = self._points[0]
        if finished - first < MIN_RATE_JOBS or now - start < MIN_RATE_SECONDS:
            return None
        return (finished - first) / (now - start)


class ObstacleWatch:
    """Looks at the start for a pause, and from time to time for whatever else keeps the queue from draining."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looked_at = float("-inf")
        self._latest: Obstacles | None = None

    def look(self, now: float, at: Progress) -> Obstacles:
        """The obstacles at `now` (monotonic seconds). A process is not missed at the first look, nor while jobs run."""
        first = self._latest is None
        if self._latest is None or now - self._looked_at >= OBSTACLE_SECONDS:
            found = obstacles(self._engine)
            idle = not first and not at.running and not at.all_wait
            self._latest = found if idle else replace(found, missing=())
            self._looked_at = now
        return self._latest


class ForecastWatch:
    """The forecast, read from time to time, and what is left of it in between."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looked_at = float("-inf")
        self._latest: Forecast | None = None

    def look(self, now: float) -> Forecast:
        """The forecast at `now` (monotonic seconds)."""
        if self._latest is None or now - self._looked_at >= FORECAST_SECONDS:
            self._latest, self._looked_at = current(self._engine), now
        return self._latest.after(now - self._looked_at)


class StrandedWatch:
    """Gives an engine some time to appear once it is all that open jobs wait for."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: float | None = None

    def over(self, now: float, at: Progress, seen: Obstacles) -> bool:
        """Whether for `grace` seconds, at `now` (monotonic), jobs were open and nothing that lives could run any.

        A process that is missing is waited for: it may be that engine's worker, or the engine itself.
        """
        if not at.stranded or seen.missing:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= self._grace


def watch(
    engine: Engine,
    console: Console,
    timeout: float | None = None,
    *,
    include_delayed: bool = False,
    model_timeout: float = MODEL_SECONDS,
) -> DrainProgress:
    """Watch until no job is open that is due, or `timeout` seconds have passed.

    It also ends when for `model_timeout` seconds every open job has named a model that no engine serves.

    Jobs that are not due for a while are waited for only with `include_delayed`. Ctrl-C raises `KeyboardInterrupt`; it
    ends the watching, not the drain.
    """
    start = progress(engine, None)
    since = start.oldest or start.now
    watched = _watched(since, start, include_delayed=include_delayed)
    if not watched.open:
        return watched
    obstacle_watch, forecast_watch, rate = ObstacleWatch(engine), ForecastWatch(engine), Rate()
    stranded_watch = StrandedWatch(model_timeout)
    with display_on(console) as display:
        for now in _poll(engine, start.now, timeout):
            seen = obstacle_watch.look(time.monotonic(), now)
            display.say(list(obstacle_sentences(seen)))
            shown = now if include_delayed else replace(now, later=0)
            display.update(shown, rate.update(time.monotonic(), now.finished), forecast_watch.look(time.monotonic()))
            watched = replace(_watched(since, now, include_delayed=include_delayed), obstacles=seen)
            alone = watched.open == now.open  # with no delayed job to wait for
            stranded = alone and stranded_watch.over(time.monotonic(), now, seen)
            watched = replace(watched, stranded=stranded)
            if stranded or not watched.open:
                break
    return watched


def _watched(since: datetime, now: Progress, *, include_delayed: bool) -> DrainProgress:
    waited_for = now.open + (now.later if include_delayed else 0)
    return DrainProgress(since, waited_for, now.finished, now.later, now.next_due)


def obstacle_sentences(seen: Obstacles) -> Iterator[str]:
    """What keeps the queue from draining, and what to type."""
    if seen.pause is not None:
        since = paused_since(seen.pause.changed_at, seen.pause.note)
        yield f"The queue has been {since}. `thothy queue resume` resumes it."
    if seen.missing:
        yield f"No {' or '.join(seen.missing)} is connected. `thothy doctor` says what to do."
    if not seen.missing:
        yield from unserved_sentences(seen)


def unserved_sentences(seen: Obstacles) -> Iterator[str]:
    """Which jobs wait for a model that no engine serves, and what to do."""
    aliases = seen.unserved.aliases
    for name, jobs in seen.unserved.jobs.items():
        another = f"let another run them: `thothy models alias {name} MODEL`"
        fix = f"start an engine with {aliases.get(name, 'it')}, or {another}"
        yield f"{waiting_for(jobs, name, aliases.get(name))}: {fix}."
    if seen.unserved.others:
        yield f"{waiting_for(seen.unserved.others)}."


def waiting_for(jobs: int, name: str | None = None, alias_of: str | None = None) -> str:
    """That jobs wait for a model that no engine serves, `alias_of` if the name that they ask for is its alias.

    Without `name`, for others than those that were named.
    """
    wait = f"{count(jobs, 'job')} {'waits' if jobs == 1 else 'wait'} for"
    if name is None:
        return f"{wait} other models that no engine serves"
    return f"{wait} {name}, {f'an alias of {alias_of}, ' if alias_of else ''}which no engine serves"


def paused_since(since: datetime | None, note: str | None) -> str:
    """Since when the queue is paused, and why."""
    return f"paused since {times.local(since)}" + (f" ({printable(note)})" if note else "")


def _poll(engine: Engine, since: datetime, timeout: float | None) -> Iterator[Progress]:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        yield progress(engine, since)
        if until is not None and time.monotonic() >= until:
            return
        time.sleep(POLL_SECONDS)
