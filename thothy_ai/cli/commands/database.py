"""`thothy migrate`."""

from __future__ import annotations

import typer

from thothy_ai.cli.shell import load_settings

app = typer.Typer()


@app.command()
def migrate() -> None:
    """Upgrade the database schema to this version. Safe to repeat, and to run from several machines at once.

    Example: thothy migrate
    """
    from thothy_ai.db.migration import migrate as run
    from thothy_ai.settings import endpoint

    settings = load_settings()
    revision = run(settings)
    typer.echo(f"Postgres at {endpoint(settings.require_database_url())} is at revision {revision}.")
