"""The findings of `thothy doctor` as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import PIPE_WIDTH, console, printable, wrapped

if TYPE_CHECKING:
    from thothy_ai.admin.doctor import Diagnosis

COLOURS = {"ok": "green", "warning": "yellow", "wrong": "red", "skipped": "bright_black"}
LEVEL_WIDTH, CHECK_WIDTH = 9, 12
MIN_TEXT_WIDTH = 24  # of a very narrow terminal


def print_findings(findings: Sequence[Diagnosis]) -> None:
    """Print the findings. Checks that were skipped for the same reason share a line at the end."""
    out = console()
    width = out.width if out.is_terminal else PIPE_WIDTH
    made = [finding for finding in findings if finding.level != "skipped"]
    for finding in made:
        _print_one(finding.level, finding.check, finding.says, finding.fix, width)
    left = sorted((finding for finding in findings if finding not in made), key=lambda finding: finding.says)
    for says, alike in groupby(left, key=lambda finding: finding.says):
        _print_one("skipped", "", f"{', '.join(finding.check for finding in alike)}: {says}", None, width)


def _print_one(level: str, check: str, says: str, fix: str | None, width: int) -> None:
    label = typer.style(f"{level:<{LEVEL_WIDTH}}", fg=COLOURS[level])
    name = typer.style(f"{check:<{CHECK_WIDTH}}", bold=True) if check else ""
    indent = LEVEL_WIDTH + (CHECK_WIDTH if check else 0)
    room = max(width - indent, MIN_TEXT_WIDTH)
    first, *rest = wrapped(printable(says), room)
    typer.echo(f"{label}{name}{first}")
    for line in [*rest, *(wrapped(printable(f"fix: {fix}"), room) if fix else ())]:
        typer.echo(f"{'':{indent}}{line}")
