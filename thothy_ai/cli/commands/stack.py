"""`thothy up` and `thothy demo`: the whole service on this machine, with nothing else to install."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.commands.adapters import parsed_beside
from thothy_ai.cli.shell import INTERRUPTED, door_address, fail, find_model, operator, usage
from thothy_ai.cli.views.tables import count

if TYPE_CHECKING:
    from thothy_ai.embedded import EmbeddedStack
    from thothy_ai.settings import Settings

app = typer.Typer()

Model = Annotated[
    Path | None,
    typer.Option(help="A Hugging Face folder or a GGUF file. Default: THOTHY_MODEL, or the bundled model."),
]
NEXT = """\
Ready after {seconds:.1f} s. In another terminal{home}:
  thothy enqueue trend_summary --source-file notes.txt --audience students
  thothy drain
  thothy artifacts list
OpenAI's API: {http}.
Console: {console}
Logs: `thothy logs`, or {logs}.
Metrics: {metrics}.
Ctrl-C stops everything; the queue is kept.
"""
# Unless a setting names a port, `up` serves metrics in one of five ranges of twenty ports, or more for many engines.
METRICS_PORT, METRICS_RANGES, METRICS_ROOM = 9400, 5, 20
NULL_ENGINE, SWITCHED_ON = "THOTHY_ENGINE_NULL", ("1", "true", "t", "yes", "y", "on")  # Typer's values of a switch
PORTS, PORTS_PER_ENGINE = 4, 2  # dispatcher, reaper, door and the reservation; an engine and its worker
HTTP_PORTS = range(8000, 8100, 2)  # each with its reservation


@app.command()
def up(
    model: Model = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="One engine and one worker per GPU: all, or indices as in `nvidia-smi` (0,1); none runs on the"
            " CPU. Default: one engine, on a GPU if there is one.",
            metavar="GPUS",
        ),
    ] = None,
    engines: Annotated[
        int | None, typer.Option(min=1, help="Run N engines on the CPU instead, to try out a fleet.", metavar="N")
    ] = None,
    tensor_parallel: Annotated[
        int,
        typer.Option(
            min=1,
            max=16,
            metavar="N",
            envvar="THOTHY_ENGINE_TENSOR_PARALLEL",
            help="Number of GPUs that share the model of each engine: for one that leaves no memory for KV on a single"
            " GPU, or to answer sooner. With --gpus, every N of them run one engine.",
        ),
    ] = 1,
    verifier: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            metavar="FOLDER",
            help="An entailment model to run beside each engine, which verifies claims in place of its model. Default:"
            " THOTHY_ENGINE_VERIFIER, or none.",
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="An adapter that each engine loads at start, and its name for jobs; may be repeated. Default:"
            " THOTHY_ENGINE_ADAPTERS, or none.",
        ),
    ] = None,
    null: Annotated[
        bool,
        typer.Option(
            "--null",
            envvar=NULL_ENGINE,
            help="Run without a model, to test what uses the queue: the engine answers at once with values that are"
            " made up to fit the schema. The checks of most kinds reject them.",
        ),
    ] = False,
) -> None:
    """Run the whole service on this machine until Ctrl-C: Postgres, Valkey, engine, dispatcher, worker, reaper, HTTP.

    With THOTHY_ENGINE_URL=https://host/v1, that server runs the jobs, and no engine is started.

    Ctrl-C waits a few seconds for running jobs (THOTHY_SHUTDOWN_DEADLINE_SECONDS, here 5 by default) and returns the
    others to the queue. A second Ctrl-C stops at once.

    Example: thothy up --model ./Qwen3-8B --gpus all
    """
    from thothy_ai.cli.views.stopping import StopDisplay, StopRequested
    from thothy_ai.cli.views.terminal_log import log_to_terminal
    from thothy_ai.embedded import EmbeddedStack
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.embedded.placement import Placement, placements
    from thothy_ai.embedded.stack import DOOR, SERVICES
    from thothy_ai.engine.process.gpus import all_gpus, visible_gpus
    from thothy_ai.engine.serving.client import had_begun
    from thothy_ai.foreign import is_foreign
    from thothy_ai.producer.drafts import load_kinds
    from thothy_ai.settings import OwnSettings
    from thothy_ai.telemetry import configure_logging

    if null and model is not None:
        usage("--null runs without a model")
    where = placements(gpus, engines, visible_gpus(all_gpus()), tensor_parallel)
    settings = OwnSettings.load()
    foreign = settings.engine_url is not None and is_foreign(settings.engine_url) and not null and model is None
    if foreign:
        _refuse_beside(settings.require_engine_url(), verifier, adapter, gpus or engines)
        where = (Placement(endpoint=Endpoint(settings.require_engine_url(), settings.reveal_engine_token())),)
    else:
        settings = settings.model_copy(update={"engine_url": None})
    if not (null or foreign):
        settings = settings.model_copy(update={"model": find_model(settings, model)})
    adapters = parsed_beside(settings.model, settings.model_name, adapter or ())
    load_kinds(settings)
    configure_logging(settings)
    log_to_terminal()
    began, ready = time.monotonic(), False
    room = max(METRICS_ROOM, PORTS + PORTS_PER_ENGINE * len(where))
    with (
        StopDisplay() as display,
        _reserved(
            settings, "metrics_port", range(METRICS_PORT, METRICS_PORT + METRICS_RANGES * room, room), room
        ) as port,
        _reserved(settings, "http_port", HTTP_PORTS, 2) as http_port,
    ):
        # A server over HTTP has its own door.
        settings = settings.model_copy(update={"metrics_port": port, "http_port": 0 if foreign else http_port})
        left_out = {"engine", DOOR} if foreign else set() if settings.http_port else {DOOR}
        services = [name for name in (*SERVICES, DOOR) if name not in left_out]
        try:
            typer.echo("Starting...")
            with EmbeddedStack(
                settings,
                services=services,
                engines=where,
                observer=display,
                null=null,
                verifier=verifier,
                adapters=adapters,
                begun=had_begun,
            ) as stack:
                ready = True
                typer.echo(_next_steps(settings, stack, time.monotonic() - began), nl=False)
                if stack.postgres.warning:
                    typer.echo(stack.postgres.warning)
                stack.wait()
        except StopRequested:
            left = display.open_jobs
            queued = f" {count(left, 'job')} {'is' if left == 1 else 'are'} queued for the next start." if left else ""
            display.end(f"Stopped.{queued}")
    if not ready:
        raise typer.Exit(INTERRUPTED)


def _refuse_beside(
    server: str, verifier: Path | None, adapters: Sequence[str] | None, engines: str | int | None
) -> None:
    """Refuse options of an engine with a third-party server: GPUs of this machine, a verifier, and adapters."""
    if engines:
        usage(f"THOTHY_ENGINE_URL is {server}, which has GPUs of its own: THOTHY_ENGINE_GPUS says how many")
    if verifier is not None:
        usage(f"--verifier runs beside an engine of ours, and THOTHY_ENGINE_URL is {server}: leave out one of them")
    if adapters:
        usage(f"THOTHY_ENGINE_URL is {server}, which loads its adapters itself: leave out --adapter")


@app.command()
def demo() -> None:
    """Drain a mixed queue on this machine, end to end, and print the report.

    Example: thothy demo
    """
    from thothy_ai.cli.commands.demo import run_demo
    from thothy_ai.errors import ConfigError
    from thothy_ai.settings import OwnSettings

    if os.environ.get(NULL_ENGINE, "").strip().lower() in SWITCHED_ON:
        raise ConfigError(f"{NULL_ENGINE}: the demo needs a model, `thothy up --null` does not: unset it")
    if left := run_demo(OwnSettings.load()):
        fail(f"{count(left, 'job')} {'is' if left == 1 else 'are'} still open")


@contextmanager
def _reserved(settings: Settings, field: str, ports: Sequence[int], room: int) -> Iterator[int]:
    """The configured port, otherwise a free one, reserved for the block with the ports after it; or 0."""
    if field in settings.model_fields_set:
        yield getattr(settings, field)
        return
    from thothy_ai.embedded.process import reserved_ports

    with reserved_ports(ports, room) as port:
        yield port or 0


def _next_steps(settings: Settings, stack: EmbeddedStack, seconds: float) -> str:
    from thothy_ai.db.connect import make_engine
    from thothy_ai.db.console_links import make_link

    home = stack.home
    where = "" if settings.home == Path(".thothy") else f" (THOTHY_HOME={home})"
    metrics = "none are served; THOTHY_METRICS_PORT chooses a port"
    if port := settings.metrics_port:
        metrics = f"http://{settings.metrics_host}:{port}/metrics of the engine, others on the next ports"
    http = settings.engine_url or "not served; THOTHY_HTTP_PORT chooses a port"  # set only for a server over HTTP
    console = "not served here"
    if settings.http_port:
        address = door_address(settings)
        http = f"{address}/v1"
        engine = make_engine(stack.settings, application="cli", pool_size=1)
        token = make_link(engine, operator(), "operator", None, personal=False)
        console = f"{address}/console/enter?token={token} (works once)"
        engine.dispose()
    return NEXT.format(seconds=seconds, home=where, logs=home / "logs", metrics=metrics, http=http, console=console)
