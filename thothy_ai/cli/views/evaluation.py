"""What `thothy eval` prints: a table with a column per result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from thothy_ai.cli.views.tables import Column, count, table

if TYPE_CHECKING:
    from thothy_ai.evaluation.results import Result

MAX_REASONS = 8
NONE = "-"


def print_results(results: Sequence[Result]) -> None:
    """A row per figure; two results are compared case by case, too."""
    first = results[0]
    title = f"{first.kind}, {count(len(first.cases), 'case')}, seed {first.seed}"
    columns = [Column(""), *(Column(result.name, number=True) for result in results)]
    table(title, columns, _rows(results))


def _rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    figures: list[tuple[str, Callable[[Result], str]]] = [
        ("prompts", lambda result: result.prompts),
        ("device", lambda result: result.device),
        ("accepted", lambda result: f"{result.accepted} of {len(result.cases)}"),
        ("yield", lambda result: f"{result.artifact_yield:.0%}"),
        ("coverage of facts", lambda result: _number(result.coverage, 2)),
        ("support by the source", lambda result: _number(result.support, 2)),
        ("support by the review", lambda result: _number(result.reviewed, 2)),
        ("the review's share of seconds", lambda result: _share(result.review_share)),
        ("the review's share of tokens", lambda result: _share(result.review_tokens)),
        ("chrF", lambda result: _number(result.chrf, 1)),
        (_unit(results), lambda result: _number(result.compute_seconds, 2)),
        ("per accepted artifact", lambda result: _number(result.seconds_per_accepted, 2)),
        ("wasted, of the seconds", lambda result: _share(result.wasted)),
        ("wasted, of the tokens computed", lambda result: _share(result.wasted_tokens)),
        ("tokens computed", lambda result: f"{sum(case.computed_tokens for case in result.cases):,}"),
        ("tokens saved by early stops", lambda result: f"{sum(case.saved_tokens for case in result.cases):,}"),
        ("output tokens", lambda result: f"{sum(case.output_tokens for case in result.cases):,}"),
    ]
    rows = [(name, *map(figure, results)) for name, figure in figures]
    return [*_known(rows), *_comparison(results), *_reasons(results)]


def _unit(results: Sequence[Result]) -> str:
    on_gpu = all(result.device.startswith("cuda") for result in results)
    return "GPU-seconds" if on_gpu else "compute-seconds"


def _known(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Without rows that are empty for all."""
    return [row for row in rows if set(row[1:]) != {NONE}]


def _comparison(results: Sequence[Result]) -> list[tuple[str, ...]]:
    if len(results) < 2:
        return []
    accepted = [{case.id for case in result.cases if case.accepted} for result in results]
    only = [mine - other for mine, other in zip(accepted, reversed(accepted), strict=True)]
    return [("accepted here only", *(str(len(ids)) for ids in only))]


def _reasons(results: Sequence[Result]) -> list[tuple[str, ...]]:
    total = sum((result.reasons for result in results[1:]), results[0].reasons)
    return [
        (f"rejected: {reason}", *(str(result.reasons[reason]) for result in results))
        for reason, _ in total.most_common(MAX_REASONS)
    ]


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"
