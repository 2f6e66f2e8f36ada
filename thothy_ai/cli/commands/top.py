"""`thothy top`: queue, engine and the last hour, live in a terminal."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.cli.shell import AsJson, load_settings
from thothy_ai.cli.views.tables import print_json

if TYPE_CHECKING:
    from thothy_ai.cli.commands.top_parts import Part
    from thothy_ai.cli.views.top import Frame

app = typer.Typer()

REFRESH_SECONDS = 1.0
FIRST_SECONDS = 6.0  # for parts that do not answer: their own time limits are shorter
STOP_SECONDS = 0.5
WIDTH = 80  # without a terminal


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit, as in a pipe.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show queue, workers, engines and the last hour, refreshed every second. q or Ctrl-C ends it.

    The engines are those of this machine, together; `thothy engines` lists all.

    Engine rates are those of the last 10 s, the queue's rate that of the last minute. Counts of a very long queue are
    refreshed less often: counting takes at most a twentieth of the time.

    Example: thothy top --once
    """
    with _parts() as frame:
        if once or as_json or not sys.stdout.isatty():
            time.sleep(REFRESH_SECONDS)  # a rate needs two readings
            _print(frame(), as_json)
        else:
            _show(frame)


@contextmanager
def _parts() -> Iterator[Callable[[], Frame]]:
    """Read all parts until the block ends; yields the latest frame, once each part was read or has failed."""
    from thothy_ai.admin.top import Record, Workers
    from thothy_ai.admin.top_engines import EngineProbe
    from thothy_ai.cli.commands.top_parts import Part
    from thothy_ai.cli.views.top import Frame

    record = Part(lambda: Record(load_settings()), REFRESH_SECONDS)
    workers = Part(lambda: Workers(load_settings()), REFRESH_SECONDS)
    engine = Part(lambda: EngineProbe(load_settings()), REFRESH_SECONDS)
    parts: tuple[Part[Any], ...] = (record, workers, engine)
    with ExitStack() as stack:
        for part in parts:
            part.start()
            stack.callback(part.stop, STOP_SECONDS)
        until = time.monotonic() + FIRST_SECONDS
        for part in parts:
            part.read.wait(max(0.0, until - time.monotonic()))
        yield lambda: Frame(record.latest, workers.latest, engine.latest)


def _print(frame: Frame, as_json: bool) -> None:
    from rich.console import Console

    from thothy_ai.cli.views.top import render

    if as_json:
        return print_json(_to_json(frame))
    width = None if sys.stdout.isatty() else WIDTH
    return Console(file=sys.stdout, width=width, highlight=False).print(render(frame, live=False))


def _show(frame: Callable[[], Frame]) -> None:
    from rich.console import Console
    from rich.live import Live

    from thothy_ai.cli.views.top import render

    console = Console(highlight=False)
    try:
        with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(render(frame(), live=True), refresh=True)
                if pressed(REFRESH_SECONDS) in {"q", "Q"}:
                    return
    except KeyboardInterrupt:
        return


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Reads single keys: waits for one at most so many seconds, empty if none came."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda seconds: sys.stdin.read(1) if select.select([terminal], [], [], seconds)[0] else ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _to_json(frame: Frame) -> dict[str, Any]:
    """Plain values under stable keys; a part that is unreachable is null, and `unreachable` says why."""
    from thothy_ai.cli.commands.top_parts import Unreachable

    parts: dict[str, Any] = {"record": frame.record, "workers": frame.workers, "engine": frame.engine}
    away = {name: part.why for name, part in parts.items() if isinstance(part, Unreachable)}
    values: dict[str, Any] = {name: None if name in away else asdict(part) for name, part in parts.items()}
    if not isinstance(frame.record, Unreachable):
        queue, hour = frame.record.queue, frame.record.hour
        values["record"]["queue"] |= {"open": queue.status.open, "seconds_to_go": queue.seconds_to_go}
        values["record"]["hour"]["artifact_yield"] = hour.artifact_yield
    return {**values, "unreachable": away}
