"""`thothy adapters`: the LoRA adapters of the queue's engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from thothy_ai.cli.shell import FAILED, AsJson, database, fail, load_settings, usage
from thothy_ai.cli.views.queue import waiting_for
from thothy_ai.cli.views.tables import Column, print_json, print_text, printable, table

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from thothy_ai.admin.engines import EngineStatus

app = typer.Typer(name="adapters", no_args_is_help=True, help="Load, unload and list the adapters of engines.")

DIGEST_CHARS = 12
UNRECORDED = (
    "Postgres has not heard of it yet, and jobs are routed as before: `thothy engines` shows the engine's state"
)
AGAIN = "Repeat the command once `thothy engines` shows all as ready."
OfModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Only engines of this model, if those of this machine have several."),
]


@app.command(short_help="Load adapters into the engines of this machine, or replace them.")
def load(
    adapters: Annotated[list[str], typer.Argument(metavar="NAME=FOLDER...", help="A name, and a folder of PEFT's.")],
    model: OfModel = None,
) -> None:
    """Load adapters into the running engines of this machine. Jobs that name one run with it from then on.

    A name that is loaded already gets the new weights; what runs with the old ones finishes with them. An engine that
    starts again has the adapters of its --adapter options only.

    Example: thothy adapters load acme=./acme-voice
    """
    from thothy_ai.admin.adapters import await_registration, check_name, engines_here
    from thothy_ai.admin.adapters import load as load_one
    from thothy_ai.engine.api.errors import EngineError

    folders = parsed(adapters)
    settings, missing = load_settings(), False
    with database() as engine:
        here = _engines(engine, model)
        left_alone = engines_here(engine, here[0].model_name, state="loading")
        for name in folders:
            check_name(engine, name, here[0].model_name)
        for each in here:
            loaded: dict[str, str] = {}
            for name, folder in folders.items():
                slow = f"{each.name} is loading {name}; on a GPU, the first adapter of an engine takes up to a minute"
                try:
                    found = load_one(settings, each, name, folder, partial(_report, slow))
                except EngineError as error:
                    missing = True
                    _report(f"{name} on {each.name}: {error}")
                else:
                    loaded[name] = found.digest
                    size = f"rank {found.rank}, {found.num_bytes / 1e6:,.1f} MB, {found.digest[:DIGEST_CHARS]}"
                    print_text(f"{each.name} has {name} ({size}).")
            if loaded and not await_registration(engine, each, loaded):
                missing = True
                _report(f"{', '.join(loaded)} on {each.name}: {UNRECORDED}")
    for each in left_alone:
        _report(f"{each.name} does not have {', '.join(folders)}: it was still loading its model. {AGAIN}")
    if missing or left_alone:
        raise typer.Exit(FAILED)


@app.command(short_help="Unload an adapter from the engines of this machine.")
def unload(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the adapter.")], model: OfModel = None
) -> None:
    """Unload an adapter from the running engines of this machine.

    Requests that engines have accepted finish with it. Queued jobs that name it wait until an engine has it again.

    Example: thothy adapters unload acme
    """
    from thothy_ai.admin.adapters import await_registration, engines_here, list_adapters
    from thothy_ai.admin.adapters import unload as unload_one
    from thothy_ai.engine.api.errors import EngineError
    from thothy_ai.queue.status import unserved_jobs

    settings, refused = load_settings(), False
    with database() as engine:
        having = [each for each in _engines(engine, model, one_model=False) if name in each.adapters]
        left_alone = [each for each in engines_here(engine, model, state="loading") if name in each.adapters]
        if not having and not left_alone:
            fail(f"no engine of this machine has an adapter {name}: `thothy adapters list` shows which there are")
        for each in having:
            try:
                unload_one(settings, each, name)
            except EngineError as error:
                refused = True
                _report(f"{name} on {each.name}: {error}")
                continue
            print_text(f"{each.name} no longer has {name}.")
            if not await_registration(engine, each, {}, unloaded=name):
                refused = True
                _report(f"{name} on {each.name}: {UNRECORDED}")
        loading = {each.name for each in left_alone}
        having_it = [other for each in list_adapters(engine) if each.name == name for other in each.engines]
        others = [other for other in having_it if other not in loading]
        with engine.connect() as connection:
            waiting = unserved_jobs(connection).jobs.get(name, 0)
    if others:
        print_text(f"{', '.join(others)} still {'has' if len(others) == 1 else 'have'} it.")
    if waiting:
        print_text(f"{waiting_for(waiting, name)}.")
    for each in left_alone:
        _report(f"{each.name} will have {name}: it was still loading its model. {AGAIN}")
    if refused or left_alone:
        raise typer.Exit(FAILED)


@app.command("list", short_help="List the adapters of all engines.")
def list_(as_json: AsJson = False) -> None:
    """List the adapters of all engines, on all machines: their model, and the digest of their weights.

    Example: thothy adapters list
    """
    from thothy_ai.admin.adapters import list_adapters

    with database() as engine:
        found = list_adapters(engine)
    if as_json:
        return print_json([asdict(each) for each in found])
    if not found:
        return print_text("No engine has an adapter. `thothy adapters load NAME=FOLDER` loads one.")
    heads = (
        Column("adapter"),
        Column("model", text=True),
        Column("engines", text=True),
        Column("rank", number=True, drop=1),
        Column("MB", number=True, drop=2),
        Column("weights", drop=3),
    )
    rows = [
        (
            each.name,
            each.model,
            ", ".join(each.engines),
            each.rank or None,
            f"{each.num_bytes / 1e6:,.1f}" if each.num_bytes else None,
            each.digest[:DIGEST_CHARS] or None,
        )
        for each in found
    ]
    return table("", heads, rows)


def parsed(given: Sequence[str]) -> dict[str, Path]:
    """The folders by adapter name, from texts such as acme=FOLDER. Raises `BadParameter`."""
    from thothy_ai.engine.api.adapters import adapters_of
    from thothy_ai.engine.api.errors import InvalidRequestError

    try:
        folders = adapters_of(given)
    except InvalidRequestError as error:
        usage(str(error))
    for name, folder in folders.items():
        if not folder.is_dir():
            usage(f"{name}: no folder at {folder}")
    return folders


def parsed_beside(model: Path | None, model_name: str | None, given: Sequence[str]) -> dict[str, Path]:
    """As `parsed`, for an engine with this model, whose name no adapter may have."""
    from thothy_ai.engine.api.identity import identity_of
    from thothy_ai.engine.api.options import EngineOptions

    folders = parsed(given)
    if (name := identity_of(EngineOptions("", model, model_name=model_name)).model_name) in folders:
        usage(f"{name} is the name of the model: choose another name for the adapter")
    return folders


def _report(refusal: str) -> None:
    """Print one line to standard error; the other engines are still asked."""
    typer.echo(f"thothy: {printable(' '.join(refusal.split()))}", err=True)


def _engines(database: Engine, model: str | None, *, one_model: bool = True) -> list[EngineStatus]:
    """The engines of this machine that serve this model."""
    from thothy_ai.admin.adapters import engines_here

    found = engines_here(database, model)
    if not found and (loading := engines_here(database, model, state="loading")):
        fail(f"{', '.join(each.name for each in loading)}: still loading the model. {AGAIN}")
    if not found:
        fail(f"no engine {f'of {model} ' if model else ''}is ready on this machine: `thothy engines` lists all")
    if one_model and len(models := sorted({each.model_name for each in found})) > 1:
        usage(f"engines of this machine have different models: choose {' or '.join(models)} with --model")
    return found
