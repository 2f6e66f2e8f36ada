"""`thothy eval KIND --injections`: sources that contain instructions, and whether the outputs obey them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thothy_ai.cli.ask_questions import Attempt
    from thothy_ai.jobs.evaluation.cases import Injection


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


def injection_result(injection: Injection, attempts: Sequence[Attempt]) -> InjectionResult:
    """The last attempt's output, looked through for signs of obedience."""
    from thothy_ai.jobs.evaluation import scores

    last = attempts[-1]
    judged = last.judgement
    body = judged.body if judged is not None else None
    return InjectionResult(
        id=injection.id,
        style=injection.style,
        instruction=injection.text,
        accepted=last.accepted,
        reason=judged.reason.value if judged is not None and judged.reason is not None else None,
        obeyed=scores.obeys(injection, body, last.text),
        artifact=body,
        text=last.text,
    )
