"""What `thothy eval` prints: a table with a column per result, and the transcripts of injections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import Column, console, count, percent, print_json, table

if TYPE_CHECKING:
    from thothy_ai.evaluation.injections import InjectionResult
    from thothy_ai.evaluation.results import EvaluationResult

MAX_REASONS = 8
NONE = "-"


def ended_counter(total: int) -> Callable[[], None]:
    """Counts ended cases on standard error, if that is a terminal."""
    screen = console(stderr=True)
    ended = 0

    def one_more() -> None:
        nonlocal ended
        ended += 1
        if screen.is_terminal:
            screen.print(f"{ended} of {total}", end="\r" if ended < total else "\n")

    return one_more


def print_results(results: Sequence[EvaluationResult]) -> None:
    """A row per figure that any result has. Two results are also compared case by case."""
    first = results[0]
    on_gpu = all(result.device.startswith("cuda") for result in results)
    figures: list[tuple[str, Callable[[EvaluationResult], str]]] = [
        ("prompts", lambda result: result.prompts),
        ("device", lambda result: result.device),
        ("accepted", lambda result: f"{result.accepted} of {len(result.cases)}"),
        ("form yield", lambda result: f"{result.form_yield:.0%}"),
        ("clean yield", lambda result: f"{result.clean_yield:.0%}"),
        ("drafts to edit", lambda result: str(result.to_edit)),
        ("coverage of facts", lambda result: _number(result.coverage, 2)),
        ("support by the source", lambda result: _number(result.support, 2)),
        ("claims supported", lambda result: _number(result.verified, 2)),
        ("verification's share of seconds", lambda result: percent(result.verification_share)),
        ("verification's share of tokens", lambda result: percent(result.verification_tokens)),
        ("chrF", lambda result: _number(result.chrf, 1)),
        ("GPU-seconds" if on_gpu else "compute-seconds", lambda result: _number(result.compute_seconds, 2)),
        ("per accepted artifact", lambda result: _number(result.seconds_per_accepted, 2)),
        ("wasted, of the seconds", lambda result: percent(result.wasted)),
        ("wasted, of the tokens computed", lambda result: percent(result.wasted_tokens)),
        ("tokens computed", lambda result: f"{sum(case.computed_tokens for case in result.cases):,}"),
        ("tokens saved by early stops", lambda result: f"{sum(case.saved_tokens for case in result.cases):,}"),
        ("output tokens", lambda result: f"{sum(case.output_tokens for case in result.cases):,}"),
    ]
    rows = [(name, *map(figure, results)) for name, figure in figures]
    rows = [row for row in rows if set(row[1:]) != {NONE}]
    if len(results) > 1:
        accepted = [{case.id for case in result.cases if case.accepted} for result in results]
        only = [mine - other for mine, other in zip(accepted, reversed(accepted), strict=True)]
        rows.append(("accepted here only", *(str(len(ids)) for ids in only)))
    reasons = sum((result.reasons for result in results[1:]), first.reasons)
    for reason, _ in reasons.most_common(MAX_REASONS):
        rows.append((f"rejected: {reason}", *(str(result.reasons[reason]) for result in results)))
    title = f"{first.kind}, {count(len(first.cases), 'case')}, seed {first.seed}"
    table(title, [Column(""), *(Column(result.name, number=True) for result in results)], rows)


def print_injections(results: Sequence[InjectionResult], kind: str, model: str, *, as_json: bool) -> None:
    """The transcripts as JSON, or a row per attempt and how many changed the task."""
    if as_json:
        print_json({"kind": kind, "model": model, "injections": [asdict(result) for result in results]})
        return
    columns = [Column("injection"), Column("style", drop=1), Column("verdict"), Column("obeyed", text=True)]
    rows = [
        (
            result.id,
            result.style,
            "accepted" if result.accepted else f"rejected: {result.reason}",
            result.obeyed or NONE,
        )
        for result in results
    ]
    table(f"Instructions in the source, {kind}, {model}", columns, rows)
    accepted = sum(result.accepted for result in results)
    published = sum(result.published for result in results)
    obeyed = sum(result.obeyed is not None for result in results)
    typer.echo(
        f"{accepted} of {count(len(results), 'output')} accepted, {published} of which obey; "
        f"{obeyed - published} of the {len(results) - accepted} rejected ones obey."
    )


def _number(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"
