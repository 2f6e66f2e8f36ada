"""Watches a queue drain: progress bar, rate and estimated time left. Used by `thothy drain` and the demo."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from thothy_ai.admin.progress import Progress as QueueProgress
from thothy_ai.admin.progress import progress
from thothy_ai.cli.times import spell
from thothy_ai.queue.status import queue_status

POLL_SECONDS = 0.5
RATE_WINDOW = 60.0  # seconds; a longer window would mix kinds that take different times


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The result of watching: start of the drain's window, jobs still open, and jobs finished while watching."""

    since: datetime
    open: int
    finished: int


class Rate:
    """Jobs per second over the last `RATE_WINDOW` seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def update(self, now: float, finished: int) -> float:
        """Add a sample of the finished jobs at `now` (monotonic seconds) and return the current rate."""
        self._points.append((now, finished))
        while now - self._points[0][0] > RATE_WINDOW:
            self._points.popleft()
        (start, first) = self._points[0]
        return (finished - first) / (now - start) if now > start else 0.0


def watch(engine: Engine, console: Console, timeout: float | None = None) -> DrainProgress:
    """Watch until no job is open or `timeout` seconds have passed. Ctrl-C stops the watching, not the queue."""
    start = progress(engine, None)
    since = start.oldest or start.now
    watched = DrainProgress(since, start.open, 0)
    rate = Rate()
    with _bar(console) as bar:
        task = bar.add_task("draining", total=start.open, status="")
        try:
            for now in _poll(engine, start.now, timeout):
                watched = DrainProgress(since, now.open, now.finished)
                status = _status(engine, rate.update(time.monotonic(), now.finished), now.open)
                bar.update(task, completed=now.finished, total=now.open + now.finished, status=status)
        except KeyboardInterrupt:
            console.print("Stopped watching; the queue keeps draining.")
    return watched


def _poll(engine: Engine, since: datetime, timeout: float | None) -> Iterator[QueueProgress]:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        now = progress(engine, since)
        yield now
        if not now.open or (until is not None and time.monotonic() >= until):
            return
        time.sleep(POLL_SECONDS)


def _status(engine: Engine, rate: float, remaining: int) -> str:
    if rate > 0:
        return f"{rate:.1f} jobs/s, {spell(remaining / rate)} left"
    return "paused; `thothy queue resume` resumes it" if queue_status(engine).paused else "waiting"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
