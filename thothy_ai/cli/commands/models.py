"""`thothy models`: whether a model will load and what it takes; aliases of models."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from thothy_ai.cli.shell import FAILED, WRONG_INPUT, AsJson, database, fail, usage
from thothy_ai.cli.views import times
from thothy_ai.cli.views.model import model_fields
from thothy_ai.cli.views.tables import Column, print_fields, print_json, print_text, table

app = typer.Typer(
    name="models", no_args_is_help=True, help="Look at models before an engine loads them, and name them."
)

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)?", re.IGNORECASE)
_UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}


@app.command(short_help="Say whether a model will load, and what it takes.")
def check(
    model: Annotated[Path, typer.Argument(help="A Hugging Face folder or a GGUF file.", metavar="FOLDER_OR_GGUF")],
    device: Annotated[str, typer.Option(help="Device to load it on: auto, cpu, cuda or cuda:1.")] = "auto",
    device_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of a GPU that is not in this machine, such as 80GB.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Data type, as of thothy engine.")] = "auto",
    weights: Annotated[str, typer.Option(help="Format of the weights, as of thothy engine.")] = "auto",
    kv_dtype: Annotated[str, typer.Option(help="Data type of the KV cache: auto or fp8.")] = "auto",
    tensor_parallel: Annotated[
        int,
        typer.Option(min=1, max=16, metavar="N", help="Number of GPUs that share the model, each with such memory."),
    ] = 1,
    max_rows: Annotated[int | None, typer.Option(min=1, help="Maximum number of concurrent sequences.")] = None,
    max_context: Annotated[int | None, typer.Option(min=2, help="Maximum number of tokens per sequence.")] = None,
    memory_utilization: Annotated[float, typer.Option(min=0.05, max=1, help="Fraction of GPU memory to use.")] = 0.9,
    nan: Annotated[bool, typer.Option("--nan", help="Read all weights, and find NaN and infinite ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a model will load, what it is, how much memory it takes, and how many tokens of KV are left.

    Only headers are read, unless --nan is given. Exit with 1 if the model will not load.

    Example: thothy models check ./Mistral-Small-3.1-24B-Instruct-2503 --device-memory 80GB --weights fp8
    """
    from thothy_ai.bench.progress import Progress
    from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError
    from thothy_ai.engine.api.options import EngineOptions
    from thothy_ai.engine.model_check.check import check_model

    options = EngineOptions(
        url="",
        model=model,
        device=device,
        dtype=dtype,
        weights=weights,
        kv_dtype=kv_dtype,
        tensor_parallel=tensor_parallel,
        max_rows=max_rows,
        max_context=max_context,
        memory_utilization=memory_utilization,
    )
    memory = None if device_memory is None else _bytes(device_memory)
    progress = Progress(sys.stderr)

    def on_read(done: int, of: int) -> None:
        if done < of:
            progress.update(f"Reading weights: {done / of:.0%}")
        else:
            progress.clear()

    try:
        report = check_model(model, options, memory=memory, values=nan, on_read=on_read)
    except (InvalidRequestError, ModelLoadError) as error:
        fail(error, WRONG_INPUT)
    print_json(report.to_json()) if as_json else print_fields(list(model_fields(report)))
    if not report.loads:
        raise typer.Exit(FAILED)


def _bytes(text: str) -> int:
    """A size such as 80GB, 79.6 GiB or 80000000000."""
    found = _SIZE.fullmatch(text.strip())
    if not found or not (size := float(found[1]) * _UNITS.get((found[2] or "").lower(), 1.0)):
        usage(f"--device-memory: {text!r} is not a size such as 80GB")
    return int(size)


@app.command(short_help="Point an alias at a model or an adapter.")
def alias(
    name: Annotated[str, typer.Argument(help="Alias that jobs name.", metavar="NAME")],
    target: Annotated[
        str, typer.Argument(help="Name of the model or the adapter, as engines serve it.", metavar="TARGET")
    ],
) -> None:
    """Point an alias at a model or an adapter. Queued jobs that name it are dispatched to its engines from now on.

    Example: thothy models alias house-model Mistral-Small-3.1-24B
    """
    from thothy_ai.admin.model_aliases import list_aliases, set_alias

    with database() as engine:
        before = set_alias(engine, name, target)
        [engines] = [known.engines for known in list_aliases(engine) if known.alias == name]
    was = f", no longer {before}" if before not in (None, target) else ""
    print_text(f"{name} now stands for {target}{was}." + ("" if engines else " No engine serves it at the moment."))


@app.command(short_help="List the aliases of models.")
def aliases(as_json: AsJson = False) -> None:
    """List the aliases of models, and how many engines serve each.

    Example: thothy models aliases
    """
    from thothy_ai.admin.model_aliases import list_aliases

    with database() as engine:
        found = list_aliases(engine)
    if as_json:
        return print_json([asdict(known) for known in found])
    if not found:
        return typer.echo("No aliases.")
    heads = (Column("alias"), Column("model"), Column("engines", number=True), Column("since"))
    rows = [(known.alias, known.model_name, f"{known.engines:,}", times.local(known.changed_at)) for known in found]
    return table("", heads, rows)


@app.command(short_help="Remove an alias of a model.")
def unalias(name: Annotated[str, typer.Argument(help="Alias to remove.", metavar="NAME")]) -> None:
    """Remove an alias. Queued jobs that name it wait until an alias or a model of that name exists again.

    Example: thothy models unalias house-model
    """
    from thothy_ai.admin.model_aliases import remove_alias

    with database() as engine:
        removed = remove_alias(engine, name)
    if not removed:
        fail(f"there is no alias {name}")
    print_text(f"{name} is no longer an alias.")
