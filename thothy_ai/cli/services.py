"""`thothy engine`, `worker`, `dispatcher`, `reaper`: one process each, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thothy_ai.cli.shell import load_settings, usage

app = typer.Typer()


@app.command()
def engine(
    model: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face folder or a GGUF file. Default: THOTHY_MODEL.", show_default=False),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Where to listen: unix:///path or tcp://127.0.0.1:port. Default: THOTHY_ENGINE_URL."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, or a torch type such as bfloat16.")] = "auto",
    kv_tokens: Annotated[
        int | None, typer.Option(min=1, help="Size of the KV pool. Default: what memory allows.")
    ] = None,
    memory_utilization: Annotated[
        float, typer.Option(min=0.05, max=1.0, help="Part of a GPU's memory to plan for.")
    ] = 0.9,
    max_rows: Annotated[int | None, typer.Option(min=1, help="Most sequences running at once.")] = None,
    max_context: Annotated[
        int | None, typer.Option(min=2, help="Most tokens of one sequence, its output included.")
    ] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens of a KV block.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Most tokens that a step computes.")] = None,
    prefix_cache: Annotated[bool, typer.Option(help="Share the KV of equal beginnings.")] = True,
    overlap: Annotated[
        bool | None,
        typer.Option(help="Launch a step before the last one is read. Default: on a GPU.", show_default=False),
    ] = None,
    graphs: Annotated[
        bool | None,
        typer.Option(help="Replay decode steps from CUDA graphs. Default: on a GPU.", show_default=False),
    ] = None,
    weights: Annotated[str, typer.Option(help="auto (as --dtype), or fp8: quantized at load.")] = "auto",
    kv_dtype: Annotated[str, typer.Option(help="Type of the KV cache: auto (as --dtype) or fp8.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on a CPU.")] = None,
    null: Annotated[bool, typer.Option("--null", help="No model: answer at once. For measuring the queue.")] = False,
    null_latency: Annotated[float, typer.Option(min=0.0, help="Seconds that each of its answers takes.")] = 0.0,
) -> None:
    """Run the engine: the resident process with weights and KV cache. Jobs come from a worker.

    Example: thothy engine --model ./SmolLM2-135M-Instruct --url unix:///run/thothy/engine.sock
    """
    if null and model:
        usage("--null runs without a model")
    from thothy_ai.engine.main import run_engine
    from thothy_ai.engine.options import EngineOptions

    settings = load_settings()
    options = EngineOptions(
        url=url or settings.require_engine_url(),
        model=None if null else model or settings.require_model(),
        device=device,
        dtype=dtype,
        kv_tokens=kv_tokens,
        memory_utilization=memory_utilization,
        max_rows=max_rows,
        max_context=max_context,
        block_size=block_size,
        token_budget=token_budget,
        prefix_cache=prefix_cache,
        overlap=overlap,
        graphs=graphs,
        weights=weights,
        kv_dtype=kv_dtype,
        threads=threads,
        metrics_host=settings.metrics_host,
        metrics_port=settings.metrics_port,
        null=null,
        null_latency=null_latency,
    )
    run_engine(options)


@app.command()
def worker() -> None:
    """Run a Celery worker: it claims jobs, has the engine answer them, judges the answers and records the outcome.

    Example: THOTHY_WORKER_IN_FLIGHT=256 thothy worker
    """
    from thothy_ai.worker import main

    main(load_settings())


@app.command()
def dispatcher() -> None:
    """Run the dispatcher: it moves due jobs to Redis, in planned order. A second one stands by.

    Example: thothy dispatcher
    """
    from thothy_ai.queue.dispatcher import main

    main(load_settings())


@app.command()
def reaper() -> None:
    """Run the reaper: it takes back lost jobs, ends expired ones and keeps usage up to date. A second one stands by.

    Example: thothy reaper
    """
    from thothy_ai.queue.reaper import main

    main(load_settings())
