"""The result of validating an output: accepted, or rejected with one reason from a fixed list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from thothy_ai.jobs.api.artifact import Artifact

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
    NAME_NOT_IN_SOURCE = "name_not_in_source"  # a person, organisation or brand
    QUOTE_NOT_IN_SOURCE = "quote_not_in_source"  # a span given as evidence
    CONTRADICTS_SOURCE = "contradicts_source"  # a negation or a direction is reversed
    UNSUPPORTED = "unsupported"  # the reviewing model found no support in the source
    REFUSAL = "refusal"  # "As an AI, I cannot ..."
    META_TALK = "meta_talk"  # talks about the text or the task: "The text discusses ..."
    OBEYS_SOURCE = "obeys_source"  # follows an instruction hidden in the source
    UNTRANSLATED = "untranslated"  # a translation that is, in part, its original
    PLACEHOLDER_LOST = "placeholder_lost"  # a placeholder, link, line break or other markup of the original
    GLOSSARY = "glossary"  # a glossary entry or a term not to be translated was ignored
    BANNED_PHRASE = "banned_phrase"
    UNSAFE_MARKUP = "unsafe_markup"
    NEAR_DUPLICATE = "near_duplicate"  # of a sibling, or of another recent artifact
    PROMPT_TOO_LONG = "prompt_too_long"
    VALIDATOR_ERROR = "validator_error"  # a validator raised, or did not end in time

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed."""
        return self is not RejectionReason.PROMPT_TOO_LONG


class Rejection(NamedTuple):
    """One reason to reject an output; `detail` is a sentence fragment for operators."""

    reason: RejectionReason
    detail: str


class Finding(NamedTuple):
    """A reviewing model's finding on one statement: `supported`, `contradicted` or `not_found` in the source."""

    statement: str
    finding: str
    reason: str


@dataclass(frozen=True, slots=True)
class Review:
    """A second look at an artifact by the resident model: one finding per statement."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A validated output. `artifact` is set whenever the output parsed, accepted or not; `review` if there was one."""

    accepted: bool
    reason: RejectionReason | None
    detail: str
    artifact: Artifact | None
    review: Review | None = None

    @classmethod
    def accept(cls, artifact: Artifact, review: Review | None = None) -> Verdict:
        """The verdict on an artifact that passed all checks."""
        return cls(accepted=True, reason=None, detail="", artifact=artifact, review=review)

    @classmethod
    def reject(cls, rejection: Rejection, artifact: Artifact | None = None, review: Review | None = None) -> Verdict:
        """The verdict on a rejected output. Its detail, which may quote the output, is made printable and shortened."""
        printable = "".join(char if char.isprintable() else " " for char in rejection.detail)
        return cls(
            accepted=False,
            reason=rejection.reason,
            detail=printable[:MAX_DETAIL_CHARS],
            artifact=artifact,
            review=review,
        )
