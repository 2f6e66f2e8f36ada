"""`thothy roles`: database roles that can enqueue and read the jobs of one tenant."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from thothy_ai.cli.shell import AsJson, Yes, confirm, database, fail, load_settings, usage
from thothy_ai.cli.views.tables import print_json, table

app = typer.Typer(name="roles", no_args_is_help=True, help="Give each tenant's producers a database role of their own.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the role in Postgres.")]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="Tenant whose jobs the role can enqueue and read.")]
NoLogin = Annotated[
    bool, typer.Option("--no-login", help="Create a role without a password, to be granted to an application's role.")
]


@app.command()
def create(name: Name, tenant: Tenant, no_login: NoLogin = False, as_json: AsJson = False) -> None:
    """Create a database role that can enqueue, follow and cancel the jobs of one tenant, and nothing else.

    Prints the password and the database URL of the tenant's producers, once: neither is stored.

    Example: thothy roles create acme_producer --tenant acme
    """
    from sqlalchemy import make_url

    from thothy_ai.db.roles import check_name, create_role, rights_of_everybody
    from thothy_ai.settings.values import check_tenant

    try:
        check_name(name, tenant)
        check_tenant(tenant)
    except ValueError as error:
        usage(str(error))
    with database() as engine:
        role = create_role(engine, name, tenant, login=not no_login)
        with engine.connect() as connection:
            left = rights_of_everybody(connection)
    url = None
    if role.password:
        own = make_url(load_settings().require_database_url())
        url = own.set(username=name, password=role.password).render_as_string(hide_password=False)
    if as_json:
        return print_json({"role": name, "tenant": tenant, "password": role.password, "database_url": url})
    typer.echo(f"Role {name} can enqueue, follow and cancel the jobs of tenant {tenant}.", err=True)
    for statement in left:
        typer.echo(f"It can fill the disk, too, unless a superuser runs {statement}", err=True)
    if url is None:
        return typer.echo(f"Grant it to the role of your application: GRANT {name} TO your_role;")
    return typer.echo(f"THOTHY_TENANT={shlex.quote(tenant)}\nTHOTHY_DATABASE_URL={shlex.quote(url)}")


@app.command("list")
def list_roles(as_json: AsJson = False) -> None:
    """List the tenants' roles.

    Example: thothy roles list
    """
    from thothy_ai.db import roles

    with database() as engine, engine.connect() as connection:
        found = roles.list_roles(connection)
    if as_json:
        return print_json([{"role": role.name, "tenant": role.tenant, "login": role.login} for role in found])
    if not found:
        return typer.echo("No roles.")
    return table("", ["role", "tenant", "login"], [[r.name, r.tenant, "yes" if r.login else "no"] for r in found])


@app.command()
def drop(name: Name, yes: Yes = False) -> None:
    """Drop a tenant's role, with its rights. The tenant's jobs stay. Asks for confirmation first.

    Example: thothy roles drop acme_producer
    """
    from thothy_ai.db import roles

    if not yes:
        confirm(f"Drop role {name}?")
    with database() as engine:
        if not roles.drop_role(engine, name):
            fail(f"no tenant's role is called {name}")
    typer.echo(f"Role {name} dropped.")
