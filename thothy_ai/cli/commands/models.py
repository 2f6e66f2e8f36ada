"""`thothy models`: what a model is, whether it will load, and what it takes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.commands import model_aliases
from thothy_ai.cli.shell import FAILED, WRONG_INPUT, AsJson, fail, usage
from thothy_ai.cli.views.tables import count, print_fields, print_json

if TYPE_CHECKING:
    from thothy_ai.engine.model_check import ModelReport

app = typer.Typer(no_args_is_help=True, help="Look at models before an engine loads them, and name them.")
app.add_typer(model_aliases.app)

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
    from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError
    from thothy_ai.engine.api.options import EngineOptions
    from thothy_ai.engine.model_check import check_model

    options = EngineOptions(
        url="",
        model=model,
        device=device,
        dtype=dtype,
        weights=weights,
        kv_dtype=kv_dtype,
        max_rows=max_rows,
        max_context=max_context,
        memory_utilization=memory_utilization,
    )
    memory = None if device_memory is None else _bytes(device_memory)
    try:
        report = check_model(model, options, memory=memory, values=nan, on_read=_progress())
    except (InvalidRequestError, ModelLoadError) as error:
        fail(error, WRONG_INPUT)
    print_json(report.to_json()) if as_json else print_fields(list(_fields(report)))
    if not report.loads:
        raise typer.Exit(FAILED)


def _bytes(text: str) -> int:
    """A size such as 80GB, 79.6 GiB or 80000000000."""
    found = _SIZE.fullmatch(text.strip())
    if not found or not (size := float(found[1]) * _UNITS.get((found[2] or "").lower(), 1.0)):
        usage(f"--device-memory: {text!r} is not a size such as 80GB")
    return int(size)


class _Progress:
    """Of --nan, on standard error."""

    def __init__(self) -> None:
        from thothy_ai.bench.progress import Progress

        self._progress = Progress(sys.stderr)

    def __call__(self, done: int, of: int) -> None:
        if done < of:
            self._progress.update(f"Reading weights: {done / of:.0%}")
        else:
            self._progress.clear()


def _progress() -> _Progress:
    return _Progress()


def _fields(report: ModelReport) -> Iterator[tuple[str, object]]:
    """The lines for a reader; what was not found out is left out."""
    yield "model", report.path
    yield "form", report.form + (f", {count(report.files, 'file')}" if report.files else "")
    if report.stored:
        yield "stored", ", ".join(f"{kind} {_gigabytes(size)}" for kind, size in report.stored.items())
    if report.family is not None:
        yield from _architecture(report)
    if report.text is not None:
        yield from _text(report)
    if report.memory is not None:
        yield from _memory(report)
    if report.values_checked:
        yield "values", "all were read"
    yield from (("refused", f"{problem.part}: {problem.says}") for problem in report.problems)
    yield "loads", "yes" if report.loads else "no"


def _architecture(report: ModelReport) -> Iterator[tuple[str, object]]:
    part = f", the text part of {report.container}" if report.container else ""
    through = ", through transformers: tensors are compared only when it loads" if report.through_transformers else ""
    yield "family", f"{report.family}{part}{through}"
    yield "parameters", f"{report.parameters or 0:,} in {count(report.layers or 0, 'layer')}"
    yield "context", f"{report.context:,} tokens, rotary embedding: {report.rope}"


def _text(report: ModelReport) -> Iterator[tuple[str, object]]:
    if (text := report.text) is None:
        return
    ends = f"; ends: {', '.join(text.ends)}" if text.ends else ""
    yield "tokenizer", f"{text.file}, {count(text.vocabulary, 'token')}{ends}"
    if text.template_options is None:
        yield "template", "none: requests send text instead of messages"
    else:
        options = ", ".join(text.template_options)
        yield "template", f"yes; options: {options}" if options else "yes, without options"


def _memory(report: ModelReport) -> Iterator[tuple[str, object]]:
    if (memory := report.memory) is None:
        return
    taken = f"weights {_gigabytes(memory.weights)} in {memory.dtype}, workspace {_gigabytes(memory.workspace)}"
    yield "memory", f"{taken}; {memory.device} has {_gigabytes(max(0, memory.available))} for them"
    yield "KV cache", f"{count(memory.kv_tokens, 'token')} left, {memory.kv_bytes_per_token:,.0f} bytes each"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
