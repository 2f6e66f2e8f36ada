"""What a judge can say about an output: accepted, or one reason from a fixed list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from thothy_ai.jobs.kind import Artifact

DETAIL_CHARACTERS = 300


class RejectionReason(StrEnum):
    """Why an output can't be published. The value is what the database and the metrics show."""

    OFF_SCHEMA = "off_schema"
    TRUNCATED = "truncated"  # the budget ran out, or the text stops in mid-sentence
    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    EMPTY = "empty"
    REPETITION = "repetition"
    WRONG_LANGUAGE = "wrong_language"
    COPIED_FROM_SOURCE = "copied_from_source"
    PROMPT_ECHO = "prompt_echo"  # it repeats its instruction
    OFF_TOPIC = "off_topic"  # next to nothing of the source is in it
    NUMBER_NOT_IN_SOURCE = "number_not_in_source"

    @property
    def retryable(self) -> bool:
        """Whether another draw may do better. A model that lacks a language lacks it at every seed."""
        return self is not RejectionReason.WRONG_LANGUAGE


class Rejection(NamedTuple):
    """One finding against an output."""

    reason: RejectionReason
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judged output. `artifact` is there whenever the output parsed, accepted or not."""

    accepted: bool
    reason: RejectionReason | None
    detail: str
    artifact: Artifact | None

    @classmethod
    def accept(cls, artifact: Artifact) -> Verdict:
        """Accept this artifact."""
        return cls(accepted=True, reason=None, detail="", artifact=artifact)

    @classmethod
    def reject(cls, rejection: Rejection, artifact: Artifact | None = None) -> Verdict:
        """Reject for this reason. The detail is cut and cleaned: it quotes an output, and goes into a database."""
        printable = "".join(char if char.isprintable() else " " for char in rejection.detail)
        return cls(accepted=False, reason=rejection.reason, detail=printable[:DETAIL_CHARACTERS], artifact=artifact)
