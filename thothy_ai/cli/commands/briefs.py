"""`thothy briefs`: briefs under names, in versions that never change."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from typing import Annotated

import typer

from thothy_ai.cli.shell import AsJson, Yes, confirm, database, fail, load_settings, usage, user_name
from thothy_ai.cli.views.tables import Column, print_json, printable, table

app = typer.Typer(name="briefs", no_args_is_help=True, help="Store briefs under names, for requests to name.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the brief.", show_default=False)]
Tenant = Annotated[str | None, typer.Option(metavar="TENANT", help="Whose brief it is. Default: THOTHY_TENANT.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who does so. Default: the user of this command.")]


@app.command()
def save(
    name: Name,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The brief, as JSON or TOML; - reads it from standard input.")
    ],
    tenant: Tenant = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Store a brief under a name, as its next version. Jobs that were enqueued keep the version that they have.

    Example: thothy briefs save spring brief.toml
    """
    from thothy_ai.admin.briefs import save_brief
    from thothy_ai.cli.inputs.kind_flags import read_text
    from thothy_ai.errors import InvalidJobError

    owner, text = tenant or load_settings().tenant, read_text(file)
    try:
        values = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        usage(f"{file} is neither JSON nor TOML: {error}")
    with database() as engine:
        try:
            version = save_brief(engine, owner, name, values, by or user_name())
        except InvalidJobError as error:
            usage(f"{file}: {error}")
    if as_json:
        return print_json({"name": name, "tenant": owner, "version": version, "changed": version is not None})
    done = f"{name}: version {version} is stored" if version else f"{name}: the newest version says the same"
    return typer.echo(f"{done}.")


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only the briefs of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the stored briefs, in their newest versions.

    Example: thothy briefs list
    """
    from thothy_ai.admin.briefs import list_briefs

    with database() as engine:
        found = list_briefs(engine, tenant)
    if as_json:
        return print_json([asdict(brief) for brief in found])
    if not found:
        return typer.echo("No briefs.")
    heads = [Column("name"), Column("version", number=True), Column("tenant", drop=2), Column("by", drop=3)]
    rows = [
        [brief.name, brief.version, brief.tenant, brief.saved_by, brief.saved_at, (brief.body or {}).get("angle")]
        for brief in found
    ]
    return table("", [*heads, Column("saved", drop=4), Column("angle", text=True, drop=1)], rows)


@app.command()
def show(
    name: Name,
    version: Annotated[int | None, typer.Option(min=1, metavar="N", help="Version. Default: the newest.")] = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show a stored brief as JSON, after a line with its version, and which others there are.

    Example: thothy briefs show spring --version 2
    """
    from thothy_ai.admin.briefs import brief_versions

    with database() as engine:
        versions = brief_versions(engine, tenant or load_settings().tenant, name)
    found = next((each for each in versions if version in {None, each.version}), None)
    if found is None:
        fail(f"no {f'version {version} of a brief' if version else 'brief'} is stored under {name!r}")
    if as_json:
        return print_json(asdict(found))
    typer.echo(printable(f"{name}, version {found.version} of {versions[0].version}, by {found.saved_by}"), err=True)
    if found.body is None:
        return typer.echo("Removed.")
    return print_json(found.body)


@app.command()
def remove(name: Name, tenant: Tenant = None, by: By = None, yes: Yes = False) -> None:
    """Have a name stand for no brief. Its versions stay, for jobs that name them.

    Example: thothy briefs remove spring
    """
    from thothy_ai.admin.briefs import remove_brief

    if not yes:
        confirm(f"Remove the brief {name}?")
    with database() as engine:
        if remove_brief(engine, tenant or load_settings().tenant, name, by or user_name()) is None:
            fail(f"no brief is stored under {name!r}")
    typer.echo(f"Brief {name} removed.")
