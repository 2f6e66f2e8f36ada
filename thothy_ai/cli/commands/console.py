"""`thothy console`: a link that signs in to the web console."""

from __future__ import annotations

from typing import Annotated

import typer

from thothy_ai.cli.shell import database, door_address, fail, load_settings, operator, usage

app = typer.Typer()


@app.command()
def console(
    role: Annotated[str, typer.Option(help="What the link allows: reader, editor or operator.")] = "operator",
    tenant: Annotated[str | None, typer.Option(help="Only what belongs to this tenant. Default: all.")] = None,
    name: Annotated[str | None, typer.Option(help="Who it is for, as changes name them. Default: you.")] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where people reach the server. Default: where it listens.",
        ),
    ] = None,
) -> None:
    """Print a link that signs in to the web console of `thothy serve`. It works once, within 15 minutes.

    Keys of the HTTP API sign in, too: those with the scope read look, review decides on artifacts, admin changes all.

    Example: thothy console --role editor --tenant acme --name Ada
    """
    from thothy_ai.db.console_links import ROLES, make_link
    from thothy_ai.settings.values import check_tenant

    if role not in ROLES:
        usage(f"--role: expected one of {', '.join(ROLES)}, got {role!r}")
    if name is not None and not (name.strip() and name.isprintable() and len(name) <= 100):
        usage("--name must have 1 to 100 printable characters")
    if tenant is not None:
        try:
            check_tenant(tenant)
        except ValueError as error:
            usage(f"--tenant: {error}")
    settings = load_settings()
    if address is None:
        if not settings.http_port:
            fail("nothing serves HTTP here: THOTHY_HTTP_PORT is 0; pass --address for a server elsewhere")
        address = door_address(settings)
    with database() as engine:
        token = make_link(engine, name or operator(), role, tenant, personal=name is not None)
    typer.echo(f"{address.rstrip('/')}/console/enter?token={token}")
