"""`thothy top`: queue, engine and the last hour, live in a terminal."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thothy_ai.cli.shell import AsJson, load_settings
from thothy_ai.cli.views.tables import print_json

if TYPE_CHECKING:
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
    with _polled_frame() as frame:
        if as_json or once or not sys.stdout.isatty():
            time.sleep(REFRESH_SECONDS)  # a rate needs two readings
            if as_json:
                print_json(frame().to_json())
            else:
                from rich.console import Console

                from thothy_ai.cli.views.top import render

                width = None if sys.stdout.isatty() else WIDTH
                Console(file=sys.stdout, width=width, highlight=False).print(render(frame(), live=False))
        else:
            _show(frame)


@contextmanager
def _polled_frame() -> Iterator[Callable[[], Frame]]:
    """Poll all sources until the block ends; yields the latest frame, once each source was read or has failed."""
    from thothy_ai.admin.top.engines import EngineSource
    from thothy_ai.admin.top.polling import Poller
    from thothy_ai.admin.top.queue import QueueSource, WorkerSource
    from thothy_ai.cli.views.top import Frame

    record = Poller(lambda: QueueSource(load_settings()), REFRESH_SECONDS)
    workers = Poller(lambda: WorkerSource(load_settings()), REFRESH_SECONDS)
    engine = Poller(lambda: EngineSource(load_settings()), REFRESH_SECONDS)
    pollers: tuple[Poller[Any], ...] = (record, workers, engine)
    with ExitStack() as stack:
        for poller in pollers:
            poller.start()
            stack.callback(poller.stop, STOP_SECONDS)
        until = time.monotonic() + FIRST_SECONDS
        for poller in pollers:
            poller.polled.wait(max(0.0, until - time.monotonic()))
        yield lambda: Frame(record.latest, workers.latest, engine.latest)


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
    """A function that waits at most the given seconds for a key, and returns it; empty if none was pressed."""
    import termios
    import tty

    def no_key(seconds: float) -> str:
        time.sleep(seconds)
        return ""

    if not sys.stdin.isatty():
        yield no_key
        return

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        poll = select.poll()
        poll.register(terminal, select.POLLIN)
        yield lambda seconds: sys.stdin.read(1) if poll.poll(seconds * 1000) else ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
