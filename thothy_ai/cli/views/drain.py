"""How a drain's progress is shown: a bar on a terminal, otherwise a line on standard error every few seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from thothy_ai.admin.progress import Progress
from thothy_ai.cli.commands.report_forecast import whole
from thothy_ai.cli.views.times import per_time
from thothy_ai.queue.forecast.outlook import Forecast

LINE_SECONDS = 5.0  # between two lines, when something has changed
QUIET_SECONDS = 30.0  # between two lines, when nothing has


class Display(Protocol):
    """Shows a drain while it is watched."""

    def update(self, now: Progress, rate: float | None, ahead: Forecast | None = None) -> None:
        """Show how far it is. `rate`: jobs per second, None while unknown. `ahead`: None where none is made."""

    def say(self, sentences: Sequence[str]) -> None:
        """Show what keeps it from going on; each new sentence once, and again when it comes back."""


@contextmanager
def display_on(console: Console) -> Iterator[Display]:
    """A display on this console if it is a terminal, otherwise lines on standard error."""
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield Bar(live)


def words(now: Progress, rate: float | None, ahead: Forecast | None = None) -> str:
    """What runs and waits, how fast jobs finish, and when the last one will have, as far as that is known."""
    waiting = now.queued + now.dispatched
    counts = [f"{now.running:,} running"] if now.running else []
    counts += [f"{waiting:,} queued"] if waiting else []
    counts += [f"{now.later:,} delayed"] if now.later else []
    return ", ".join([*counts, *_outlook(now, rate, ahead)])


def _outlook(now: Progress, rate: float | None, ahead: Forecast | None) -> list[str]:
    if now.next_due and (now.all_wait or not now.open):
        return [f"the next is due in {whole((now.next_due - now.now).total_seconds())}"]
    left = [] if now.later or not now.open else _left(ahead)
    if rate is not None:
        return [per_time(rate), *left]
    return left if now.finished or not now.running else ["none finished yet", *left]


def _left(ahead: Forecast | None) -> list[str]:
    """The time to go and its ninth decile, if the forecast knows them; of a paused queue, none is shown."""
    if ahead is None or ahead.paused or not ahead.p50 or ahead.p90 is None:
        return []
    return [f"about {whole(ahead.p50)} left (90 %: {whole(ahead.p90)})"]


class Bar:
    """A bar and a line of words, which are gone when the drain is over; sentences stay above it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bars = Bars(TextColumn("draining"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bars.add_task("draining", total=None)
        self._said: list[str] = []

    def update(self, now: Progress, rate: float | None, ahead: Forecast | None = None) -> None:
        """Draw it again."""
        self._bars.update(self._task, completed=now.finished, total=now.finished + now.open + now.later)
        self._live.update(Group(self._bars, Text(words(now, rate, ahead))))

    def say(self, sentences: Sequence[str]) -> None:
        """Print new sentences above the bar."""
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

    def update(self, now: Progress, rate: float | None, ahead: Forecast | None = None) -> None:
        """Print a line if it is time for one."""
        since = self._clock() - self._printed_at
        total = now.finished + now.open + now.later
        text = words(now, rate, ahead)
        line = f"{now.finished:,} of {total:,} finished" + (f", {text}" if text else "")
        line = text if text and not now.finished else line
        if since >= QUIET_SECONDS or (line != self._last and since >= LINE_SECONDS):
            typer.echo(line, err=True)
            self._last, self._printed_at = line, self._clock()

    def say(self, sentences: Sequence[str]) -> None:
        """Print new sentences at once."""
        for sentence in sentences:
            if sentence not in self._said:
                typer.echo(sentence, err=True)
        self._said = list(sentences)
