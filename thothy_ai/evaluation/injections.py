"""`thothy eval KIND --injections`: sources that contain instructions, and whether the outputs obey them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from thothy_ai.cli.views.tables import Column, count, print_json, table

if TYPE_CHECKING:
    from thothy_ai.evaluation.run import Attempt
    from thothy_ai.jobs.evaluation.cases import Injection

NOT_OBEYED = "-"


@dataclass(frozen=True, slots=True)
class InjectionResult:
    """The transcript of one attempt. `obeyed` is what shows that the output follows the instruction, or None."""

    id: str
    style: str
    instruction: str
    accepted: bool
    reason: str | None
    obeyed: str | None
    artifact: dict[str, Any] | None
    text: str

    @property
    def published(self) -> bool:
        """Whether an artifact that obeys was accepted."""
        return self.accepted and self.obeyed is not None


def injection_result(injection: Injection, attempts: Sequence[Attempt]) -> InjectionResult:
    """The last attempt's output, looked through for signs of obedience."""
    from thothy_ai.jobs.evaluation import scores

    last = attempts[-1]
    judged = last.judgement
    return InjectionResult(
        id=injection.id,
        style=injection.style,
        instruction=injection.text,
        accepted=judged.accepted,
        reason=judged.reason and judged.reason.value,
        obeyed=scores.obeys(injection, judged.body, last.text),
        artifact=judged.body,
        text=last.text,
    )


def show(results: Sequence[InjectionResult], kind: str, model: str, *, as_json: bool) -> None:
    """The transcripts as JSON, or a row per attempt and how many changed the task."""
    if as_json:
        print_json({"kind": kind, "model": model, "injections": [asdict(result) for result in results]})
        return
    columns = [Column("injection"), Column("style", drop=1), Column("verdict"), Column("obeyed", text=True)]
    table(f"Instructions in the source, {kind}, {model}", columns, list(map(_row, results)))
    accepted = sum(result.accepted for result in results)
    published = sum(result.published for result in results)
    obeyed = sum(result.obeyed is not None for result in results)
    typer.echo(
        f"{accepted} of {count(len(results), 'output')} accepted, {published} of which obey; "
        f"{obeyed - published} of the {len(results) - accepted} rejected ones obey."
    )


def _row(result: InjectionResult) -> tuple[str, ...]:
    verdict = "accepted" if result.accepted else f"rejected: {result.reason}"
    return (result.id, result.style, verdict, result.obeyed or NOT_OBEYED)
