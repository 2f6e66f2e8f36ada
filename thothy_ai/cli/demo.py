"""`thothy demo`: the whole path on this machine, from an empty home to a drained queue and a report.

A home of its own keeps the demo away from a stack that runs here. Data and artifacts stay; processes and ports do not.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.cli.shell import console
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console
    from sqlalchemy import Engine

    from thothy_ai.cli.watch import Seen
    from thothy_ai.embedded import EmbeddedStack

ATTEMPTS = 2  # a small model's second thought is worth its time, its third is not


def run_demo(settings: Settings) -> int:
    """Start everything, drain the demo's queue, stop everything. Returns how many jobs were left open."""
    from thothy_ai.embedded import EmbeddedStack

    out = console()
    began = time.monotonic()
    demo = demo_settings(settings)
    out.print(f"Starting Postgres, Valkey, engine, dispatcher, reaper and worker in {demo.home} …")
    with EmbeddedStack(demo) as stack:
        out.print(f"Ready after {time.monotonic() - began:.0f} s.")
        seen, artifacts = _drain(stack, out)
    out.print(f"Artifacts: {artifacts}")
    out.print(f"Done in {time.monotonic() - began:.0f} s. Nothing is left running.")
    return seen.open


def demo_settings(settings: Settings) -> Settings:
    """The same settings in the demo's own home, with the bundled model unless another is set."""
    from thothy_ai.engine.bundled import bundled_model_path

    model = settings.model or bundled_model_path()
    return settings.model_copy(update={"home": settings.home.absolute() / "demo", "model": model})


def _drain(stack: EmbeddedStack, out: Console) -> tuple[Seen, Path]:
    from thothy_ai.admin.report import drain_report
    from thothy_ai.cli.report_view import render
    from thothy_ai.cli.watch import watch
    from thothy_ai.db.connect import make_engine
    from thothy_ai.demo.plan import demo_jobs
    from thothy_ai.producer import EnqueueOptions, Producer

    with Producer.from_settings(stack.settings) as producer:
        jobs = producer.enqueue_many((job, EnqueueOptions(max_attempts=ATTEMPTS)) for job in demo_jobs())
    out.print(f"Enqueued {len(jobs)} jobs.")
    engine = make_engine(stack.settings, application="demo", pool_size=2)
    try:
        seen = watch(engine, out)
        out.print(render(drain_report(engine, seen.since)))
        return seen, _export(engine, seen, stack.home)
    finally:
        engine.dispose()


def _export(engine: Engine, seen: Seen, home: Path) -> Path:
    """Accepted artifacts of this run, one JSON file each, in a folder named after its start."""
    from thothy_ai.admin.artifacts import stream_artifacts
    from thothy_ai.cli.artifacts import write_folder
    from thothy_ai.db.states import Verdict

    folder = home / "artifacts" / seen.since.strftime("%Y-%m-%dT%H-%M-%S")
    write_folder(stream_artifacts(engine, verdict=Verdict.ACCEPTED, since=seen.since), folder)
    return folder
