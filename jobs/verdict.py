"""The result of validating an output: accepted, or rejected with one reason from a fixed list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from thothy_ai.jobs.kind import Artifact

MAX_DETAIL_CHARS = 300


class RejectionReason(StrEnum):
    """Why an output cannot be published. The values are stored in the database and used as metric labels."""

    OFF_SCHEMA = "off_schema"
    TRUNCATED = "truncated"  # the token budget was reached, or the text stops in mid-sentence
    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    EMPTY = "empty"
    REPETITION = "repetition"
    WRONG_LANGUAGE = "wrong_language"
    COPIED_FROM_SOURCE = "copied_from_source"
    PROMPT_ECHO = "prompt_echo"  # repeats the prompt's instruction
    OFF_TOPIC = "off_topic"  # shares too few words with the source
    NUMBER_NOT_IN_SOURCE = "number_not_in_source"

    @property
    def retryable(self) -> bool:
        """Whether another seed may succeed. A model that cannot write a language fails with every seed."""
        return self is not RejectionReason.WRONG_LANGUAGE


class Rejection(NamedTuple):
    """One reason to reject an output; `detail` is a sentence fragment for operators."""

    reason: RejectionReason
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A validated output. `artifact` is set whenever the output parsed, accepted or not."""

    accepted: bool
    reason: RejectionReason | None
    detail: str
    artifact: Artifact | None

    @classmethod
    def accept(cls, artifact: Artifact) -> Verdict:
        """The verdict on an artifact that passed all checks."""
        return cls(accepted=True, reason=None, detail="", artifact=artifact)

    @classmethod
    def reject(cls, rejection: Rejection, artifact: Artifact | None = None) -> Verdict:
        """The verdict on a rejected output. Its detail, which may quote the output, is made printable and shortened."""
        printable = "".join(char if char.isprintable() else " " for char in rejection.detail)
        return cls(accepted=False, reason=rejection.reason, detail=printable[:MAX_DETAIL_CHARS], artifact=artifact)
