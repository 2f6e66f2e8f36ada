"""`thothy webhooks list`, `retry` and `secret`: messages about ended jobs, and the secret to verify them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from thothy_ai.cli.inputs.job_options import MAX_LISTED, Tenant
from thothy_ai.cli.shell import AsJson, database, fail, load_settings, usage
from thothy_ai.cli.views.tables import Column, count, print_json, table

app = typer.Typer(
    name="webhooks", no_args_is_help=True, help="List webhooks, send dead ones again, show the receivers' secret."
)


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


@app.command("list")
def list_(
    state: Annotated[DeliveryState | None, typer.Option(help="Only deliveries in this state.")] = None,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="Maximum number of deliveries.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Count deliveries by state, and list them, newest first. Delivered ones are kept for 7 days, dead ones for 30.

    Example: thothy webhooks list --state dead
    """
    from thothy_ai.admin import webhooks

    with database() as engine:
        counts = webhooks.counts(engine, tenant)
        found = webhooks.deliveries(engine, state=state, tenant=tenant, limit=limit)
    if as_json:
        return print_json({"counts": counts, "deliveries": found})
    typer.echo(", ".join(f"{number:,} {name}" for name, number in counts.items()))
    columns = {
        "id": Column("id"),
        "type": Column("type", drop=3),
        "state": Column("state"),
        "attempts": Column("attempts", number=True),
        "created_at": Column("created", drop=2),
        "next_attempt_at": Column("next attempt", drop=1),
        "url": Column("url", text=True),
        "error": Column("error", text=True),
    }
    if found:
        table("", list(columns.values()), [[row[name] for name in columns] for row in found])
    return None


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of deliveries, as listed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead deliveries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again, now and for up to a day: those with these ids, or all dead ones.

    Example: thothy webhooks retry --all
    """
    from thothy_ai.admin import webhooks

    if bool(ids) == every:
        usage("pass ids of deliveries, or pass --all alone")
    wanted: set[UUID] = set()
    for text in ids or ():
        try:
            wanted.add(UUID(text))
        except ValueError:
            usage(f"{text!r} is not the id of a delivery")
    with database() as engine:
        due = len(webhooks.retry(engine, None if every else list(wanted)))
    if as_json:
        print_json({"due": due})
    else:
        typer.echo(f"{count(due, 'webhook')} due now.")
    if due < len(wanted):
        fail(f"{len(wanted) - due} of the given ids are unknown or already delivered")


@app.command()
def secret(
    tenant: Annotated[
        str | None, typer.Option(metavar="TENANT", help="Tenant of the receivers. Default: that of the settings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the secret with which a tenant's receivers verify webhooks; while it is being changed, both secrets.

    Example: thothy webhooks secret --tenant acme
    """
    from thothy_ai.admin import webhooks
    from thothy_ai.errors import ConfigError

    if tenant == "":
        usage("the tenant is empty")
    settings = load_settings()
    chosen = tenant or settings.tenant
    found = webhooks.secrets(settings, chosen)
    if not found:
        fix = "set it here and for the reaper, to at least 24 random characters"
        raise ConfigError(f"THOTHY_WEBHOOK_SECRETS is not set: {fix}")
    if as_json:
        return print_json({"tenant": chosen, "secrets": found})
    return typer.echo("\n".join(found))
