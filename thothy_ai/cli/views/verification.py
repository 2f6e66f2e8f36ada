"""Prints the result of `thothy eval verification`: a row per sort of defect, and the meaning for an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import Column, percent, table
from thothy_ai.plans.context import MIN_DOUBTS

if TYPE_CHECKING:
    from thothy_ai.evaluation.verification import VerifierResult


def print_verifier(result: VerifierResult) -> None:
    """The table, and sentences on precision and cost."""
    columns = [Column("defect"), *(Column(name, number=True) for name in ("bad claims", "found", "false alarms"))]
    rows = [(sort, *_cells(result.of_sort(sort))) for sort in result.sorts]
    table(f"{result.verifier.name} as a verifier", columns, [*rows, ("all", *_cells(result))])
    for line in _sentences(result):
        typer.echo(line)


def _cells(result: VerifierResult) -> tuple[str, str, str]:
    return str(result.bad), str(result.found), f"{result.false_alarms} of {result.sound}"


def _sentences(result: VerifierResult) -> Iterator[str]:
    yield f"Precision {percent(result.precision)}, recall {percent(result.recall)}: half of these claims are bad."
    yield f"Where one claim in twenty is bad, {percent(result.natural_precision)} of its doubts are right."
    if result.unread:
        yield f"{result.unread} of {len(result.labels)} claims are in answers that cannot be read."
    if result.doubts.total < MIN_DOUBTS:
        yield f"Fewer than {MIN_DOUBTS} doubts tell no precision: its findings weigh {result.doubts.weight}."
    yield f"{result.usage.compute_seconds:.1f} compute-seconds on {result.device}."
