"""`thothy doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from thothy_ai.cli.shell import FAILED, AsJson, load_settings, usage
from thothy_ai.cli.views.doctor import print_findings
from thothy_ai.cli.views.tables import print_json

app = typer.Typer()


@app.command()
def doctor(
    only: Annotated[list[str] | None, typer.Option(help="Only this check. May be repeated.", metavar="CHECK")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every part of the service, and say how to fix what is wrong. Exit with 1 if a check fails.

    Checks: settings, postgres, schema, redis, celery, model, engine, dispatcher, reaper, worker, engines, queue,
    webhooks.

    Example: thothy doctor --only postgres --only redis
    """
    from thothy_ai.admin.doctor import CHECKS, Level, examine

    unknown = sorted(set(only or ()) - set(CHECKS))
    if unknown:
        usage(f"unknown check {unknown[0]!r}; available: {', '.join(CHECKS)}")
    findings = examine(load_settings, only or ())
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        print_findings(findings)
    if any(finding.level is Level.WRONG for finding in findings):
        raise typer.Exit(FAILED)
