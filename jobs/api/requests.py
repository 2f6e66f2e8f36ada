"""Base classes of requests about a source text, and the fields that they share."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs.api.kind import A_co, Request
from thothy_ai.jobs.text.locales import Locale

Length = Literal["short", "standard", "long"]
T = TypeVar("T")

MAX_TERMS = 100
_LETTER = re.compile(r"[^\W\d_]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACES = re.compile(r"\s+")


def _check_line(value: str) -> str:
    if _CONTROL.search(value):
        raise PydanticCustomError("not_a_line", "must be one line, without control characters")
    return value.strip()


def _check_distinct(terms: tuple[str, ...]) -> tuple[str, ...]:
    """Without duplicates. Two spellings of one term contradict each other."""
    spelled: dict[str, str] = {}
    for term in terms:
        other = spelled.setdefault(_folded(term), term)
        if other != term:
            raise PydanticCustomError(
                "two_spellings", "has '{term}' in another spelling, too: '{other}'", {"term": term, "other": other}
            )
    return tuple(spelled.values())


def _folded(text: str) -> str:
    return _SPACES.sub(" ", text).casefold()


ShortText = Annotated[str, Field(max_length=200), AfterValidator(_check_line)]
Term = Annotated[str, Field(max_length=80), AfterValidator(_check_line)]
BrandTerms = Annotated[tuple[Term, ...], Field(max_length=MAX_TERMS), AfterValidator(_check_distinct)]
BannedPhrases = Annotated[
    tuple[Term, ...],
    Field(max_length=MAX_TERMS),
    AfterValidator(lambda phrases: tuple({_folded(phrase): phrase for phrase in phrases}.values())),
]


Verification = Annotated[
    bool, Field(description="Have the model hold each claim against its evidence. What is in doubt becomes a finding.")
]


class SourceRequest(Request[A_co]):
    """A request about a source text. Requests with the same source are siblings and share its KV."""

    source: Annotated[str, Field(description="Text that the job is about.")]

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        if not _LETTER.search(source):
            raise PydanticCustomError("no_words", "has no words")
        return source


class WritingRequest(SourceRequest[A_co]):
    """A request for new text about the source, written for an audience in the language of `locale`."""

    audience: Annotated[ShortText, Field(description="Readers to write for.")] = "a general audience"
    locale: Annotated[Locale, Field(description="Language to write in, with its region if that matters.")] = "en"
    tone: Annotated[ShortText, Field(description="Tone of the text.")] = "clear and factual"
    voice: Annotated[
        ShortText | None, Field(description="Voice whose approved artifacts are shown to the model as examples.")
    ] = None
    length: Annotated[Length, Field(description="How much to write.")] = "standard"
    brand_terms: Annotated[
        BrandTerms, Field(description="Names to be spelled exactly so. They need not be in the source.")
    ] = ()
    banned_phrases: Annotated[BannedPhrases, Field(description="Phrases that the text must not contain.")] = ()
    verification: Verification = False

    @field_validator("banned_phrases")
    @classmethod
    def _check_terms(cls, phrases: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for term in info.data.get("brand_terms", ()):
            for phrase in phrases:
                if re.search(rf"(?<!\w){re.escape(_folded(phrase))}(?!\w)", _folded(term)):
                    raise PydanticCustomError(
                        "contradiction",
                        "bans '{phrase}', which is part of the brand term '{term}'",
                        {"phrase": phrase, "term": term},
                    )
        return phrases

    @property
    def own_names(self) -> tuple[str, ...]:
        """What the text may name although the source does not."""
        return (*self.brand_terms, self.audience)

    def per_length(self, short: T, standard: T, long: T) -> T:
        """The one of three values that belongs to the requested length."""
        return {"short": short, "standard": standard, "long": long}[self.length]
