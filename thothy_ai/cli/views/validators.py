"""Prints the result of `thothy eval validators FOLDER`: how many labelled texts gates reject and findings doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import Column, percent, table

if TYPE_CHECKING:
    from thothy_ai.evaluation.validators import Counts, JudgedText


def print_measured(judged: Sequence[JudgedText]) -> None:
    """Print tables for gates alone and for gates with findings, per language group and per sort of defect."""
    from thothy_ai.evaluation.validators import Counts, by_group, by_sort

    names = ("good texts", "rejected", "in doubt", "bad texts", "rejected", "rejected or in doubt")
    groups = [*by_group(judged).items(), ("all", Counts.of(judged))]
    columns = [Column("language group"), *(Column(name, number=True) for name in names)]
    table("Gates, and findings", columns, [(name, *_good(counts), *_bad(counts)) for name, counts in groups])
    columns = [Column("defect"), *(Column(name, number=True) for name in names[3:])]
    table("Bad texts, by what is wrong", columns, [(name, *_bad(counts)) for name, counts in by_sort(judged).items()])
    typer.echo(
        "Defects of meaning need a reader who understands the text: `thothy eval verification` measures a model as one."
    )


def _good(counts: Counts) -> tuple[str, str, str]:
    in_doubt = counts.good_found - counts.good_rejected
    return str(counts.good), _part(counts.good_rejected, counts.good), _part(in_doubt, counts.good)


def _bad(counts: Counts) -> tuple[str, str, str]:
    return str(counts.bad), _part(counts.bad_rejected, counts.bad), _part(counts.bad_found, counts.bad)


def _part(count: int, total: int) -> str:
    return f"{count} ({percent(count / total)})" if total else "–"
