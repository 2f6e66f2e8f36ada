"""`thothy demo`: the whole service on this machine, from an empty home directory to a drained queue and a report.

The demo has its own home directory, so it does not disturb a running stack. Data and artifacts are kept afterwards;
processes are stopped.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.shell import INTERRUPTED
from thothy_ai.cli.views.tables import console, count
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from thothy_ai.admin.drain import DrainStatus
    from thothy_ai.cli.views.stopping import StopDisplay
    from thothy_ai.embedded import EmbeddedStack

DEADLINE_SECONDS = 2.0  # for running jobs when the demo is interrupted
MAX_ATTEMPTS = 1  # an output is repaired within its attempt; a second attempt would take too long for a demo


def run_demo(settings: Settings) -> int:
    """Start the stack, drain the demo's queue and stop the stack. Returns the number of jobs still open.

    Raises `typer.Exit` with 130 when it is interrupted.
    """
    from thothy_ai.cli.views.stopping import StopDisplay, StopRequested

    with StopDisplay(always=False) as display:
        try:
            return _run(demo_settings(settings), display)
        except StopRequested:
            left = ""
            if number := display.open_jobs:
                were = f"{count(number, 'job')} {'was' if number == 1 else 'were'} unfinished"
                left = f" {were}; the next demo starts without them."
            display.end(f"Stopped the demo.{left or ' All processes are stopped.'}")
    raise typer.Exit(INTERRUPTED)


def _run(settings: Settings, display: StopDisplay) -> int:
    from thothy_ai.embedded import EmbeddedStack

    out = console()
    began = time.monotonic()
    out.print(f"Starting Postgres, Valkey, engine, dispatcher, reaper and worker in {settings.home} …")
    with EmbeddedStack(settings, observer=display, clean=True) as stack:
        if stack.cancelled:
            out.print(f"Cancelled {count(stack.cancelled, 'job')} that an earlier demo left unfinished.")
        out.print(f"Ready after {time.monotonic() - began:.0f} s.")
        last, artifacts = _drain(stack, out)
    out.print(f"\nArtifacts: {artifacts}")
    out.print(f"Done in {time.monotonic() - began:.0f} s. All processes are stopped.")
    return last.open


def demo_settings(settings: Settings) -> Settings:
    """The settings with the demo's own home, and with the bundled model unless one is configured."""
    from thothy_ai.engine.checkpoint.bundled import bundled_model_path

    model = settings.model or bundled_model_path()
    update: dict[str, object] = {"home": settings.home.absolute() / "demo", "model": model}
    if "duplicate_days" not in settings.model_fields_set:
        update["duplicate_days"] = 0  # a demo repeats the last one's jobs
    if "shutdown_deadline_seconds" not in settings.model_fields_set:
        update["shutdown_deadline_seconds"] = DEADLINE_SECONDS
    return settings.model_copy(update=update)


def _drain(stack: EmbeddedStack, out: Console) -> tuple[DrainStatus, Path]:
    """Enqueue the demo's jobs, watch them, print the report and export the artifacts; returns their folder."""
    from thothy_ai.admin.artifacts import stream_artifacts
    from thothy_ai.admin.drain import watch_drain
    from thothy_ai.admin.report.drain_report import drain_report
    from thothy_ai.cli.views.artifact_files import write_folder
    from thothy_ai.cli.views.drain import show_drain
    from thothy_ai.cli.views.report import ReportText
    from thothy_ai.db.connect import make_engine
    from thothy_ai.db.states import ArtifactVerdict
    from thothy_ai.demo.plan import demo_jobs
    from thothy_ai.producer import EnqueueOptions, Producer

    with Producer.from_settings(stack.settings) as producer:
        jobs = producer.enqueue_many((job, EnqueueOptions(max_attempts=MAX_ATTEMPTS)) for job in demo_jobs())
    out.print(f"Enqueued {count(len(jobs), 'job')}.")
    engine = make_engine(stack.settings, application="demo", pool_size=2)
    try:
        last = show_drain(out, watch_drain(engine))
        out.print(ReportText(drain_report(engine, last.since)))
        folder = stack.home / "artifacts" / last.since.strftime("%Y-%m-%dT%H-%M-%S")
        write_folder(stream_artifacts(engine, verdict=ArtifactVerdict.ACCEPTED, since=last.since), folder)
        return last, folder
    finally:
        engine.dispose()
