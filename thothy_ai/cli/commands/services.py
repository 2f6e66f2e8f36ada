"""`thothy engine`, `worker`, `dispatcher`, `reaper`, `serve`: one process each, which runs until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thothy_ai.cli.commands.adapters import parsed_beside
from thothy_ai.cli.inputs.engine_flags import engine_options, with_engine_flags
from thothy_ai.cli.shell import WRONG_INPUT, fail, load_settings, usage

app = typer.Typer()


@app.command()
@with_engine_flags
def engine(**given: Any) -> None:
    """Run the engine: the resident process that holds the weights and the KV cache. Workers send it requests.

    Each option is also read from a variable: --kv-dtype from THOTHY_ENGINE_KV_DTYPE, --no-graphs from
    THOTHY_ENGINE_GRAPHS=off. The option takes precedence.

    With THOTHY_DATABASE_URL set, it is listed by `thothy engines`, and its residency is recorded.

    Example: thothy engine --model ./SmolLM2-135M-Instruct --url unix:///run/thothy/engine.sock
    """
    if given["null"] and given["model"]:
        usage("--null runs without a model")
    from thothy_ai.engine.process.main import run_engine

    settings = load_settings()
    options = engine_options(given, settings)
    parsed_beside(options.model, options.model_name, options.adapters)
    if settings.database_url is None:
        run_engine(options)
        return
    if options.model is not None and not options.model.exists():
        fail(f"{options.model}: no such file or folder", WRONG_INPUT)  # before a session of this model is recorded
    from thothy_ai.worker.registration import registered

    with registered(options, settings) as (known, observer):
        run_engine(known, observer)


@app.command()
def worker(
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of a server over HTTP, as it cannot be measured. Default: THOTHY_ENGINE_GPUS."),
    ] = None,
) -> None:
    """Run a Celery worker: it claims jobs, sends them to the engine, validates the results and records the outcome.

    The engine is the one at THOTHY_ENGINE_URL: ours, or any server with OpenAI's API, as https://host/v1.

    Example: THOTHY_WORKER_IN_FLIGHT=256 thothy worker
    """
    from thothy_ai.worker import main

    main(load_settings(**({} if gpus is None else {"engine_gpus": gpus})))


@app.command()
def dispatcher() -> None:
    """Run the dispatcher: it moves due jobs to Redis in planned order. A second one runs as a standby.

    Example: thothy dispatcher
    """
    from thothy_ai.queue.dispatcher import main

    main(load_settings())


@app.command()
def reaper() -> None:
    """Run the reaper: it takes back lost jobs, ends expired ones and keeps usage and batches up to date.

    A second one stands by.

    Example: thothy reaper
    """
    from thothy_ai.batches.keeper import BatchKeeper
    from thothy_ai.queue.reaper import main

    settings = load_settings()
    main(settings, BatchKeeper(settings).running())


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: THOTHY_HTTP_HOST.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port to listen on. Default: THOTHY_HTTP_PORT.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            "--interactive-share",
            min=0.01,
            max=1.0,
            help="Part of each engine that requests over HTTP may take. Default: THOTHY_INTERACTIVE_SHARE.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Certificate for HTTPS, in PEM. Default: THOTHY_HTTP_TLS_CERTIFICATE.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Private key of the certificate. Default: THOTHY_HTTP_TLS_KEY.")
    ] = None,
    without_keys: Annotated[
        bool, typer.Option("--no-keys", help="Let anyone who reaches the address use it, without a key.")
    ] = False,
) -> None:
    """Serve OpenAI's API over HTTP: chat completions and completions, by the engines of the queue.

    Requests go past the queue, before its jobs. Without THOTHY_DATABASE_URL, the engine at THOTHY_ENGINE_URL serves
    them.

    Example: thothy serve --port 8000
    """
    from thothy_ai.http.server import main

    given = {
        "http_host": host,
        "http_port": port,
        "interactive_share": share,
        "http_tls_certificate": tls_certificate,
        "http_tls_key": tls_key,
        "http_keys": "off" if without_keys else None,
    }
    settings = load_settings(**{name: value for name, value in given.items() if value is not None})
    if not settings.http_port:
        usage("THOTHY_HTTP_PORT is 0: name a port with --port")
    main(settings)
