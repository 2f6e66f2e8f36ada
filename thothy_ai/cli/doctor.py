"""`thothy doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from thothy_ai.cli.shell import AsJson, load_settings, usage
from thothy_ai.cli.tables import console, print_json

app = typer.Typer()

MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "wrong": ("wrong", "bold red")}


@app.command()
def doctor(
    only: Annotated[list[str] | None, typer.Option(help="Only this check. May be repeated.", metavar="CHECK")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every part of the service, and say how to fix what is wrong. Exit with 1 if a check fails.

    Checks: settings, postgres, schema, redis, celery, engine, model, dispatcher, reaper, worker, queue.

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
        for finding in findings:
            _print(finding.check, finding.level, finding.says, finding.fix)
    if any(finding.level is Level.WRONG for finding in findings):
        raise typer.Exit(1)


def _print(check: str, level: str, message: str, fix: str | None) -> None:
    from rich.text import Text

    label, style = MARKS[level]
    line = Text.assemble((f"{label:<8}", style), (f"{check:<11}", "bold"), message)
    console().print(line, soft_wrap=True)
    if fix:
        console().print(Text(f"{'':19}fix: {fix}"), soft_wrap=True)
