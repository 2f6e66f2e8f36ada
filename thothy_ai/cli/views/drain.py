"""The progress of a drain: a bar on a terminal, otherwise a line on standard error every few seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from thothy_ai.admin.drain import DrainProgress, DrainStatus
from thothy_ai.admin.durations import per_time, spell_whole
from thothy_ai.cli.views.forecast import UNPROVED
from thothy_ai.cli.views.queue import obstacle_sentences
from thothy_ai.queue.forecast.outlook import Forecast

LINE_SECONDS = 5.0  # between two lines, when something has changed
QUIET_SECONDS = 30.0  # between two lines, when nothing has changed


class Display(Protocol):
    """Shows a drain that is being watched."""

    def update(self, now: DrainProgress, rate: float | None, ahead: Forecast | None = None) -> None:
        """Show the progress. `rate`: jobs per second, None while unknown."""

    def say(self, sentences: Sequence[str]) -> None:
        """Show each sentence that the last call did not show."""


@contextmanager
def display_on(console: Console) -> Iterator[Display]:
    """A display on this console if it is a terminal, otherwise lines on standard error."""
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield Bar(live)


def show_drain(console: Console, looks: Iterator[DrainStatus]) -> DrainStatus:
    """Show a drain until it ends; returns the last look at it."""
    status = next(looks)
    if not status.open:
        return status
    with display_on(console) as display:
        for status in looks:
            if status.obstacles is not None:
                display.say(list(obstacle_sentences(status.obstacles)))
            shown = status.progress if status.include_delayed else replace(status.progress, later=0)
            display.update(shown, status.rate, status.forecast)
    return status


def words(now: DrainProgress, rate: float | None, ahead: Forecast | None = None) -> str:
    """The numbers of running and waiting jobs, the rate and the time left, as far as they are known."""
    waiting = now.queued + now.dispatched
    parts = [f"{now.running:,} running"] if now.running else []
    parts += [f"{waiting:,} queued"] if waiting else []
    parts += [f"{now.later:,} delayed"] if now.later else []
    if now.next_due and (now.all_wait or not now.open):
        return ", ".join([*parts, f"the next is due in {spell_whole((now.next_due - now.now).total_seconds())}"])
    if rate is not None:
        parts.append(per_time(rate))
    elif now.running and not now.finished:
        parts.append("none finished yet")
    if ahead is not None and not ahead.paused and ahead.p50 and now.open and not now.later:
        slow = UNPROVED if ahead.p90 is None else spell_whole(ahead.p90)
        parts.append(f"about {spell_whole(ahead.p50)} left (90 %: {slow})")
    return ", ".join(parts)


class Bar:
    """A bar and a line of words, which are erased at the end; sentences stay above them."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bars = Bars(TextColumn("draining"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bars.add_task("draining", total=None)
        self._said: list[str] = []

    def update(self, now: DrainProgress, rate: float | None, ahead: Forecast | None = None) -> None:
        self._bars.update(self._task, completed=now.finished, total=now.finished + now.open + now.later)
        self._live.update(Group(self._bars, Text(words(now, rate, ahead))))

    def say(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                self._live.console.print(Text(sentence))
        self._said = list(sentences)


class Lines:
    """A line when something has changed, at most every `LINE_SECONDS`, and at least every `QUIET_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._printed_at = -math.inf
        self._last = ""
        self._said: list[str] = []

    def update(self, now: DrainProgress, rate: float | None, ahead: Forecast | None = None) -> None:
        since = self._clock() - self._printed_at
        total = now.finished + now.open + now.later
        text = words(now, rate, ahead)
        line = f"{now.finished:,} of {total:,} finished" + (f", {text}" if text else "")
        line = text if text and not now.finished else line
        if since >= QUIET_SECONDS or (line != self._last and since >= LINE_SECONDS):
            typer.echo(line, err=True)
            self._last, self._printed_at = line, self._clock()

    def say(self, sentences: Sequence[str]) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                typer.echo(sentence, err=True)
        self._said = list(sentences)
