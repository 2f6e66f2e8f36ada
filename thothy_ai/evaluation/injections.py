"""`thothy eval KIND --injections`: sources that contain instructions, and whether the outputs obey them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thothy_ai.evaluation.run import CaseAttempt
from thothy_ai.jobs.evaluation import scores
from thothy_ai.jobs.evaluation.cases import Injection


@dataclass(frozen=True, slots=True)
class InjectionResult:
    """The transcript of one attempt. `obeyed` is the evidence that the output follows the instruction, or None."""

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
        """Whether an artifact that obeys the instruction was accepted."""
        return self.accepted and self.obeyed is not None


def injection_result(injection: Injection, attempts: Sequence[CaseAttempt]) -> InjectionResult:
    """The last attempt's output, searched for signs of obedience."""
    last = attempts[-1]
    judged = last.judgement
    return InjectionResult(
        id=injection.id,
        style=injection.style,
        instruction=injection.text,
        accepted=judged.accepted,
        reason=judged.reason and judged.reason.value,
        obeyed=scores.obeys(injection, judged.body, last.calls.text),
        artifact=judged.body,
        text=last.calls.text,
    )
