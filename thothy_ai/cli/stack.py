"""`thothy up` and `thothy demo`: the whole service on this machine, with nothing else to install."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import fail, load_settings

if TYPE_CHECKING:
    from types import FrameType

    from thothy_ai.settings import Settings

app = typer.Typer()

Model = Annotated[
    Path | None,
    typer.Option(help="A Hugging Face folder or a GGUF file. Default: THOTHY_MODEL, or the bundled model."),
]
NEXT = """\
Ready after {seconds:.1f} s. In another terminal{home}:
  thothy enqueue trend_summary --source-file notes.txt --audience "indie founders"
  thothy drain
  thothy artifacts list
Logs are in {logs}. Ctrl-C stops everything; the queue is kept.
"""


@app.command()
def up(model: Model = None) -> None:
    """Run the whole service on this machine until Ctrl-C: Postgres, Valkey, engine, dispatcher, worker, reaper.

    Example: thothy up --model ./SmolLM2-135M-Instruct
    """
    from thothy_ai.embedded import EmbeddedStack
    from thothy_ai.telemetry import configure_logging

    settings = _with_model(load_settings(), model)
    configure_logging(settings)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    typer.echo("Starting...")
    try:
        with EmbeddedStack(settings) as stack:
            home = "" if settings.home == Path(".thothy") else f" (THOTHY_HOME={stack.home})"
            logs = stack.home / "logs"
            typer.echo(NEXT.format(seconds=time.monotonic() - began, home=home, logs=logs), nl=False)
            stack.wait()
    except KeyboardInterrupt:
        typer.echo("Stopped.")


@app.command()
def demo() -> None:
    """Drain a mixed queue on this machine, end to end, and print the report.

    Example: thothy demo
    """
    from thothy_ai.cli.demo import run_demo

    if left := run_demo(load_settings()):
        fail(f"{left} jobs are still open")


def _with_model(settings: Settings, model: Path | None) -> Settings:
    """The settings with a model: the one given, or theirs, or the bundled one."""
    from thothy_ai.engine.bundled import bundled_model_path

    path = model or settings.model or bundled_model_path()
    if not path.exists():
        fail(f"no model at {path}")  # before anything is started
    return settings.model_copy(update={"model": path})


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM stops the stack in the same order as Ctrl-C."""
    raise KeyboardInterrupt
