"""The result of validating an output: rejected by a gate, or accepted, with the findings that are left to a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from thothy_ai.jobs.api.artifact import Artifact

MAX_DETAIL_CHARS = 300


class RejectionReason(StrEnum):
    """Why an output cannot be published. The values are stored in the database and used as metric labels."""

    OFF_SCHEMA = "off_schema"
    TRUNCATED = "truncated"  # the token budget was reached, or the text stops in mid-sentence
    TOO_LONG = "too_long"
    TOO_MANY_SENTENCES = "too_many_sentences"  # for the channel
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
    MISQUOTED = "misquoted"  # quotation marks around words that the source lacks, or that another speaker says there
    CONTRADICTS_SOURCE = "contradicts_source"  # a negation or a direction is reversed
    UNSUPPORTED = "unsupported"  # a claim, by the verifying model, or the name in a tag
    REFUSAL = "refusal"  # "As an AI, I cannot ..."
    META_TALK = "meta_talk"  # talks about the text or the task: "The text discusses ..."
    OBEYS_SOURCE = "obeys_source"  # follows an instruction hidden in the source
    FOREIGN_TAG = "foreign_tag"  # a tag in another language
    UNTRANSLATED = "untranslated"  # a translation that is, in part, its original
    PLACEHOLDER_LOST = "placeholder_lost"  # a placeholder, link, line break or other markup of the original
    GLOSSARY = "glossary"  # a glossary entry or a term not to be translated was ignored
    BANNED_PHRASE = "banned_phrase"
    MUST_MENTION = "must_mention"  # a phrase that the brief wants is missing
    UNSAFE_MARKUP = "unsafe_markup"
    FORMALITY = "formality"  # addresses the reader in the form that was not asked for
    READING_LEVEL = "reading_level"  # harder to read than the brief asks for
    REPEATS_TITLE = "repeats_title"  # a title that is the source's, or a standfirst that repeats the title
    TYPOGRAPHY = "typography"  # a word twice, a space before a comma, a text in capitals
    UNKNOWN_WORDS = "unknown_words"  # too many words that no dictionary has
    NEAR_DUPLICATE = "near_duplicate"  # of a sibling, or of another recent artifact
    SENT_BACK = "sent_back"  # by an editor, with a note
    PROMPT_TOO_LONG = "prompt_too_long"
    VALIDATOR_ERROR = "validator_error"  # a validator raised, or did not end in time

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed."""
        return self is not RejectionReason.PROMPT_TOO_LONG


class Rejection(NamedTuple):
    """What a check found wrong with a text; `detail` is a sentence fragment for operators.

    `span` is the faulty range of characters in the checked text, `source` the range that contradicts it in the source;
    `part` is the dotted path of the artifact's field that has the text, such as `key_points.1.point`.
    """

    reason: RejectionReason
    detail: str
    span: tuple[int, int] | None = None
    source: tuple[int, int] | None = None
    part: str = ""

    def at(self, *part: str | int) -> Rejection:
        """The same rejection, in a part of an artifact."""
        return self._replace(part=".".join(map(str, part)))

    def moved(self, start: int, source_start: int) -> Rejection:
        """The same rejection, if both texts are parts of longer ones that begin at these places; below 0: unknown."""
        span = self.span and (self.span[0] + start, self.span[1] + start)
        source = self.source and (self.source[0] + source_start, self.source[1] + source_start)
        return self._replace(span=span if start >= 0 else None, source=source if source_start >= 0 else None)


class Place(NamedTuple):
    """A range of characters in an artifact's field; a field's name is its dotted path, such as `key_points.1.point`."""

    part: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A located doubt that does not reject.

    `source` is a range of characters in the request's source. `weight` is the measured precision of the check or model
    that raised it, 0 to 1; `by` is `rule`, or `verification` for the model's.
    """

    reason: RejectionReason
    detail: str
    place: Place | None = None
    source: tuple[int, int] | None = None
    weight: float = 0.5
    by: str = "rule"

    @property
    def stored(self) -> dict[str, Any]:
        """The form that is stored with the artifact: a flat dictionary of JSON values."""
        part, start, end = self.place or (None, None, None)
        source_start, source_end = self.source or (None, None)
        return {
            "reason": self.reason,
            "detail": self.detail,
            "part": part,
            "start": start,
            "end": end,
            "source_start": source_start,
            "source_end": source_end,
            "weight": self.weight,
            "by": self.by,
        }


class VerifiedClaim(NamedTuple):
    """A claim of an artifact, its label (`supported`, `contradicted`, `not_found` or `unread`), and the passage of the
    source that the verifying model cites; empty if it cites none.
    """

    claim: str
    label: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a model found when it compared an artifact's claims with the source."""

    claims: tuple[VerifiedClaim, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A validated output: accepted if no gate is against it. `artifact` is set whenever the output parsed, accepted or
    not; `verification` if there was one. `findings` of a rejected artifact also include its faults; `draft` has the
    fields of an incomplete artifact.
    """

    accepted: bool
    reason: RejectionReason | None
    detail: str
    artifact: Artifact | None
    verification: Verification | None = None
    findings: tuple[Finding, ...] = ()
    draft: Mapping[str, Any] | None = None

    @classmethod
    def accept(
        cls, artifact: Artifact, verification: Verification | None = None, findings: tuple[Finding, ...] = ()
    ) -> Verdict:
        """The verdict on an artifact that passed all gates."""
        return cls(
            accepted=True, reason=None, detail="", artifact=artifact, verification=verification, findings=findings
        )

    @classmethod
    def reject(
        cls,
        rejection: Rejection,
        artifact: Artifact | None = None,
        verification: Verification | None = None,
        findings: tuple[Finding, ...] = (),
        draft: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """The verdict on a rejected output. The detail can quote the output, so it is made printable and shortened."""
        return cls(
            accepted=False,
            reason=rejection.reason,
            detail=printable(rejection.detail),
            artifact=artifact,
            verification=verification,
            findings=findings,
            draft=draft or None,
        )


def printable(detail: str) -> str:
    """A detail without control characters, shortened to a bounded length: it can quote an output."""
    return "".join(char if char.isprintable() else " " for char in detail)[:MAX_DETAIL_CHARS]
