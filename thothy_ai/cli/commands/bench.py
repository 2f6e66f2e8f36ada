"""`thothy bench`: benchmarks of the engine on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from thothy_ai.cli.shell import AsJson, usage

if TYPE_CHECKING:
    from thothy_ai.bench.measure import BenchReport
    from thothy_ai.bench.progress import Progress

Value = TypeVar("Value")

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure the engine on this machine.")

# The benchmark also runs on machines without Typer, so that it has a parser of its own, which gets all arguments.
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASS_THROUGH, short_help="Drain a workload file and print the figures.")
def drain(context: typer.Context) -> None:
    """Drain a workload file, or with --kinds real jobs, through an engine in this process and print the figures.

    Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b
    """
    from thothy_ai.bench.command import main
    from thothy_ai.bench.service.backlog import engine_requests

    main(context.args, program=context.command_path, make_requests=engine_requests)


@app.command(context_settings=_PASS_THROUGH, short_help="Run jobs through the service and straight to its engine.")
def service(context: typer.Context) -> None:
    """Run the same jobs through a whole service on this machine and straight to its engine, and print the figures.

    Example: thothy bench service --shape llama-8b --tokenizer FOLDER
    """
    from thothy_ai.bench.command import run_and_print
    from thothy_ai.bench.options import parse_service

    options = parse_service(context.args, program=context.command_path)

    def measure(progress: Progress) -> BenchReport:
        from thothy_ai.bench.service.run import measure_service

        return measure_service(options, progress)

    run_and_print(options, measure)


@app.command()
def factory(
    engines: Annotated[
        list[str],
        typer.Option(
            "--engine",
            metavar="URL",
            help="An engine that runs: unix:///path, tcp://127.0.0.1:port, or a server as https://host/v1. Repeat it.",
        ),
    ],
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 64,
    kind: Annotated[str | None, typer.Option(help="Jobs of this kind alone. Default: a mix of the four kinds.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the jobs: the same one gives the same jobs.")] = 0,
    attempts: Annotated[int, typer.Option(min=1, max=100, help="Most attempts of a job.")] = 1,
    warm_up: Annotated[int, typer.Option(min=0, help="Other jobs that are drained first, without their time.")] = 4,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which a drain is cut off.")] = 3600.0,
    gpus: Annotated[
        list[int] | None, typer.Option(min=1, help="GPUs of the engine: once for all, or for each in turn.")
    ] = None,
    price: Annotated[
        list[float] | None, typer.Option(min=0, help="Price of a GPU-hour: once for all, or for each in turn.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model of a server that lists several: once, or for each in turn.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIABLE",
            help="Environment variable with the token or API key: once, or for each in turn. Default:"
            " THOTHY_ENGINE_TOKEN.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Drain the same jobs, with their prompts, schemas and validators, through each engine, and compare them.

    Each engine is used through a service of its own in a temporary folder, one after the other.

    Example: thothy bench factory --engine http://127.0.0.1:8000/v1 --engine https://vllm.example/v1 --gpus 1 --gpus 2
    """
    from thothy_ai.bench.progress import Progress
    from thothy_ai.bench.requests import Backlog
    from thothy_ai.bench.service.backlog import make_jobs
    from thothy_ai.bench.service.factory import Contender, factory_rows, measure_factory
    from thothy_ai.cli.views.tables import Column, print_json, table

    def each(name: str, given: list[Value] | None) -> list[Value] | list[None]:
        if not given:
            return [None] * len(engines)
        if len(given) not in {1, len(engines)}:
            usage(f"--{name} is given {len(given)} times: once for all engines, or {len(engines)} times")
        return given * len(engines) if len(given) == 1 else given

    keys = [os.environ.get(variable or "THOTHY_ENGINE_TOKEN") for variable in each("key", key)]
    values = zip(engines, keys, each("model", model), each("gpus", gpus), each("price", price), strict=True)
    runs = measure_factory(
        [Contender(*given) for given in values],
        make_jobs(Backlog(jobs, kind, seed)),
        make_jobs(Backlog(warm_up, kind, seed + 1_000_003)) if warm_up else (),
        Progress(sys.stderr),
        attempts=attempts,
        limit_seconds=limit,
    )
    if as_json:
        print_json([run.to_json() for run in runs])
        return
    heads = [Column("figure", text=True), *(Column(run.contender.url, number=True) for run in runs)]
    table("factory", heads, [[name, *shown] for name, shown in factory_rows(runs)])


@app.command()
def serve(
    url: Annotated[str, typer.Option(metavar="URL", help="The server's API, as http://127.0.0.1:8000/v1.")],
    rates: Annotated[
        list[float] | None,
        typer.Option("--rate", min=0.001, help="Requests per second; repeat it. Default: a search for the knee."),
    ] = None,
    start: Annotated[float, typer.Option(min=0.001, help="The first rate of that search.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds in which requests are sent at each rate.")] = 20.0,
    requests: Annotated[int, typer.Option(min=1, help="Fewest requests of a rate.")] = 20,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt, nearly.")] = 1000,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 200,
    first_token: Annotated[float, typer.Option(min=1, help="Target: milliseconds to the first token.")] = 200.0,
    per_token: Annotated[float, typer.Option(min=0.1, help="Target: milliseconds per further token.")] = 50.0,
    share: Annotated[float, typer.Option(min=0.01, max=1, help="Share of answers that must meet the target.")] = 0.99,
    patience: Annotated[float, typer.Option(min=1, help="Seconds after which an answer has failed.")] = 120.0,
    seed: Annotated[int, typer.Option(help="Seed of arrivals and prompts.")] = 0,
    model: Annotated[str | None, typer.Option(help="Model to ask, if the server lists several.")] = None,
    key: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the API key.")
    ] = "THOTHY_ENGINE_TOKEN",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw latencies and goodput by rate: .svg, .png or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load a server at a range of rates, and find the highest one at which it meets a target.

    Arrivals are open-loop: Poisson, seeded, and sent when they are due, however many are unanswered.

    Example: thothy bench serve --url http://127.0.0.1:8000/v1 --prompt-tokens 1000 --output-tokens 200 --plot curve.svg
    """
    from thothy_ai.bench.progress import Progress
    from thothy_ai.bench.service.load import Goal
    from thothy_ai.bench.service.sweep import SweepOptions, measure_sweep, sweep_columns, sweep_rows, verdict
    from thothy_ai.cli.views.load_plot import SUFFIXES, draw
    from thothy_ai.cli.views.tables import Column, print_json, table

    if plot is not None and plot.suffix not in SUFFIXES:
        usage(f"--plot {plot}: expected a file that ends in {', '.join(SUFFIXES)}")
    sweep = measure_sweep(
        SweepOptions(
            url=url,
            key=os.environ.get(key),
            model=model,
            rates=tuple(rates or ()),
            start=start,
            seconds=seconds,
            requests=requests,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            seed=seed,
            target=Goal(first_token / 1e3, per_token / 1e3),
            share=share,
            patience=patience,
        ),
        Progress(sys.stderr),
    )
    if plot is not None:
        draw(sweep, plot)
    if as_json:
        print_json(sweep.to_json())
        return
    title = f"{sweep.model}: prompts of {sweep.prompt_tokens:,} tokens, answers of {output_tokens:,}; times in ms"
    table(title, [Column(head, number=True) for head in sweep_columns()], sweep_rows(sweep))
    for line in verdict(sweep):
        typer.echo(line)
