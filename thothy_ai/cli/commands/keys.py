"""`thothy keys`: keys of the HTTP API, with scopes and limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from thothy_ai.cli.inputs.times import ahead
from thothy_ai.cli.shell import AsJson, Yes, confirm, database, fail, usage
from thothy_ai.cli.views.tables import Column, print_json, table
from thothy_ai.cli.views.times import local, utc
from thothy_ai.errors import PastExpiryError

app = typer.Typer(name="keys", no_args_is_help=True, help="Give programs keys for the HTTP API of `thothy serve`.")

_NAME = re.compile(r"[^\x00-\x1f\x7f]{0,100}")


@app.command()
def create(
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="Tenant of the requests and jobs of this key.")],
    name: Annotated[str, typer.Option(help="What the key is for, as it is listed.")] = "",
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What the key may do: chat, jobs, read, review or admin, which includes the others. Repeatable."
            " Default: chat, jobs and read.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it expires: a time, or a duration from now.")
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, max=10**9, help="Maximum of requests.")] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(min=1, max=10**12, help="Maximum of tokens, of prompts and outputs.")
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Maximum of requests for text at the same time.")
    ] = None,
    interactive_seconds_per_day: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=10**9, help="Maximum of GPU-seconds of requests for text in a UTC day. Jobs are not counted."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key for the HTTP API, and print it, once: only a hash of it is stored.

    Once there is a key, every request needs one, within seconds.

    Example: thothy keys create --tenant acme --name newsroom --requests-per-minute 600
    """
    from thothy_ai.db.api_keys import SCOPES, USUAL, KeyLimits, create_key, id_of
    from thothy_ai.settings.values import check_tenant

    try:
        check_tenant(tenant)
    except ValueError as error:
        usage(f"--tenant: {error}")
    wanted = scopes or USUAL
    for scope in wanted:
        if scope not in SCOPES:
            usage(f"--scope: {scope!r} is not one of {', '.join(SCOPES)}")
    if not _NAME.fullmatch(name):
        usage("--name must be at most 100 characters, none of which is a control character")
    limits = KeyLimits(requests_per_minute, tokens_per_minute, concurrent, interactive_seconds_per_day)
    until = ahead(expires) if expires else None
    with database() as engine:
        try:
            key = create_key(engine, tenant, wanted, limits, name=name, expires_at=until)
        except PastExpiryError:
            usage(f"--expires: {expires} is in the past")
    if as_json:
        return print_json({"id": id_of(key), "key": key, "tenant": tenant})
    typer.echo(f"Key {id_of(key)} of tenant {tenant}; it is not stored, and cannot be shown again:", err=True)
    return typer.echo(key)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only the keys of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the keys: how each begins, whose it is, what it may do, and its limits.

    Example: thothy keys list
    """
    from thothy_ai.db import api_keys

    with database() as engine, engine.connect() as connection:
        found = [key for key in api_keys.list_keys(connection) if tenant in {None, key.tenant}]
    if as_json:
        return print_json([_plain(key) for key in found])
    if not found:
        return typer.echo("No keys.")
    heads = ["key", "tenant", "name", "scopes", "state"]
    limits = [Column(head, number=True) for head in ("requests/min", "tokens/min", "concurrent", "interactive s/day")]
    rows = []
    for key in found:
        of = key.limits
        bounds = (of.requests_per_minute, of.tokens_per_minute, of.concurrent_requests, of.interactive_seconds_per_day)
        scopes = " ".join(scope for scope in api_keys.SCOPES if scope in key.scopes)
        shown = ("-" if each is None else f"{each:,}" for each in bounds)
        rows.append([key.id, key.tenant, key.name, scopes, _state(key), *shown])
    return table("", [*heads, *limits], rows)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="How the key begins, as `thothy keys list` shows it.")],
    yes: Yes = False,
) -> None:
    """Revoke a key: within seconds, no request with it is accepted, and those that run are ended.

    Example: thothy keys revoke thothy_5f0c3a91d2e4
    """
    from thothy_ai.db.api_keys import id_of, revoke_key

    key_id = id_of(key) or key
    if not yes:
        confirm(f"Revoke key {key_id}?")
    with database() as engine:
        if not revoke_key(engine, key_id):
            fail("there is no such key; `thothy keys list` shows all")
    typer.echo(f"Key {key_id} revoked.")


def _state(key: Any) -> str:
    if key.revoked_at is not None:
        return f"revoked {local(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'expired' if key.ends_in <= 0 else 'valid until'} {local(key.expires_at)}"


def _plain(key: Any) -> dict[str, Any]:
    from dataclasses import asdict

    times = ("created_at", "expires_at", "revoked_at")
    return {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": sorted(key.scopes),
        **asdict(key.limits),
        **{name: utc(moment) if (moment := getattr(key, name)) else None for name in times},
    }
