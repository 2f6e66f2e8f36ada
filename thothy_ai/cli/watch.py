"""Watching a queue drain: progress bar, rate and time to go. `thothy drain` and the demo use it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from thothy_ai.admin.progress import Progress as Drained
from thothy_ai.admin.progress import progress
from thothy_ai.cli.times import spell
from thothy_ai.queue.status import queue_status

INTERVAL = 0.5  # seconds between looks
RATE_WINDOW = 60.0  # the rate is that of the last minute: kinds differ, and so do the hours


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen: jobs still open at the end, jobs finished meanwhile, and where the drain's window begins."""

    since: datetime
    open: int
    finished: int


class Rate:
    """Jobs per second over the last `RATE_WINDOW` seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def update(self, now: float, finished: int) -> float:
        """Add a point; the rate so far."""
        self._points.append((now, finished))
        while now - self._points[0][0] > RATE_WINDOW:
            self._points.popleft()
        (start, first) = self._points[0]
        return (finished - first) / (now - start) if now > start else 0.0


def watch(engine: Engine, console: Console, timeout: float | None = None) -> Seen:
    """Show the queue until nothing is open or `timeout` seconds are over. Ctrl-C stops watching, not the queue."""
    began = progress(engine, None)
    since = began.oldest or began.now
    seen = Seen(since, began.open, 0)
    rate = Rate()
    with _bar(console) as bar:
        task = bar.add_task("draining", total=began.open, pace="")
        try:
            for now in _looks(engine, began.now, timeout):
                seen = Seen(since, now.open, now.finished)
                pace = rate.update(time.monotonic(), now.finished)
                bar.update(
                    task, completed=now.finished, total=now.open + now.finished, pace=_pace(engine, pace, now.open)
                )
        except KeyboardInterrupt:
            console.print("Stopped watching; the queue goes on.")
    return seen


def _looks(engine: Engine, since: datetime, timeout: float | None) -> Iterator[Drained]:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        now = progress(engine, since)
        yield now
        if not now.open or (until is not None and time.monotonic() >= until):
            return
        time.sleep(INTERVAL)


def _pace(engine: Engine, rate: float, to_do: int) -> str:
    if rate > 0:
        return f"{rate:.1f} jobs/s, {spell(to_do / rate)} to go"
    return "paused: `thothy queue resume`" if queue_status(engine).paused else "waiting"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
