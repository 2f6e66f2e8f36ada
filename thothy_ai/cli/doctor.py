"""`thothy doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from thothy_ai.cli.shell import AsJson, console, load_settings, print_json, usage

app = typer.Typer()

MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "wrong": ("wrong", "bold red")}


@app.command()
def doctor(
    only: Annotated[list[str] | None, typer.Option(help="Only this check; may be repeated.", metavar="CHECK")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at every part: what is reachable, what is wrong, how to mend it. Exit code 1 if something is wrong.

    Checks: settings, postgres, schema, redis, celery, engine, model, dispatcher, reaper, worker, queue.

    Example: thothy doctor --only postgres --only redis
    """
    from thothy_ai.admin.doctor import CHECKS, Level, examine

    unknown = sorted(set(only or ()) - set(CHECKS))
    if unknown:
        usage(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    findings = examine(load_settings, only or ())
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _print(finding.check, finding.level, finding.says, finding.mend)
    if any(finding.level is Level.WRONG for finding in findings):
        raise typer.Exit(1)


def _print(check: str, level: str, says: str, mend: str | None) -> None:
    from rich.text import Text

    word, style = MARKS[level]
    line = Text.assemble((f"{word:<8}", style), (f"{check:<11}", "bold"), says)
    console().print(line, soft_wrap=True)
    if mend:
        console().print(Text(f"{'':19}mend: {mend}"), soft_wrap=True)
