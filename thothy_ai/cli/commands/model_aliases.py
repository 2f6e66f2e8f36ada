"""`thothy models alias`, `aliases` and `unalias`: names that jobs ask for, and the models that they stand for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from thothy_ai.cli.shell import AsJson, database, fail
from thothy_ai.cli.views import times
from thothy_ai.cli.views.tables import Column, print_json, print_text, table

app = typer.Typer()


@app.command(short_help="Point an alias at a model.")
def alias(
    name: Annotated[str, typer.Argument(help="Alias that jobs name.", metavar="NAME")],
    target: Annotated[str, typer.Argument(help="Name of the model, as engines serve it.", metavar="TARGET")],
) -> None:
    """Point an alias at a model. Queued jobs that name it are dispatched to engines of that model from now on.

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
