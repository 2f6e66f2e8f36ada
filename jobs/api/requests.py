"""Base classes of requests about a source text, and the fields that they share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs.api.brief import Brief, Origin, ReadingLevel, joined_sources, origin_of
from thothy_ai.jobs.api.kind import A_co, Request
from thothy_ai.jobs.api.terms import BannedPhrases, BrandTerms, ShortText
from thothy_ai.jobs.text.locales import Locale
from thothy_ai.jobs.text.phrases import contradicts

Length = Literal["short", "standard", "long"]
T = TypeVar("T")

PENDING: Final = "(the sources of the stored brief)"  # until the brief takes the place of its name
_LETTER = re.compile(r"[^\W\d_]")
_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")


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
    brief: Annotated[
        Brief | None,
        Field(
            description="What the piece is to be: a brief, or the name of a stored one.",
            json_schema_extra=lambda schema: schema["anyOf"].append({"type": "string"}),
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _join_sources(cls, values: Any) -> Any:  # noqa: ANN401  whatever was given
        """Make the texts of a brief's sources the source of the request."""
        brief = values.get("brief") if isinstance(values, Mapping) else None
        brief = brief.model_dump(mode="json", exclude_unset=True) if isinstance(brief, Brief) else brief
        name = brief.get("name") if isinstance(brief, Mapping) else brief
        if isinstance(name, str) and "source" not in values and not (isinstance(brief, Mapping) and "sources" in brief):
            return {**values, "source": PENDING}
        sources = brief.get("sources") if isinstance(brief, Mapping) else None
        if brief is None or not isinstance(sources, list | tuple):
            return values
        if not all(isinstance(source, Mapping) for source in sources):
            return values
        if not any(isinstance(source.get("text"), str) for source in sources):
            return values
        source, placed = joined_sources(sources)
        if values.get("source", source) != source:
            raise PydanticCustomError(
                "two_sources", "has a source, and a brief whose sources have texts; pass one of them"
            )
        if all(source.get("text") for source in sources):  # otherwise the brief says what is missing
            brief = {**brief, "sources": placed}
        return {**values, "source": source, "brief": brief}

    @field_validator("brief")
    @classmethod
    def _check_brief(cls, brief: Brief | None, info: ValidationInfo) -> Brief | None:
        """Check that the brief contradicts no other field, and asks for no figure that is missing in the source."""
        given: Mapping[str, Any] = info.data
        wanted, avoided = (brief.must_mention, brief.must_avoid) if brief else ((), ())
        locale = given.get("locale", "")
        for field, phrases in (
            ("banned_phrases of the request", given.get("banned_phrases", ())),
            ("must_avoid", avoided),
        ):
            for text, phrase in product(wanted, phrases):
                if contradicts(text, phrase, locale):
                    raise _contradiction("must_mention", text, field, phrase)
        for phrase, term in product(avoided, given.get("brand_terms", ())):
            if contradicts(term, phrase, locale):
                raise _contradiction("must_avoid", phrase, "brand_terms of the request", term)
        for text in wanted:
            if any(figure not in given.get("source", figure) for figure in _FIGURE.findall(text)):
                problem = (
                    "must_mention: '{text}' has a figure that the source does not have; write it as the source does, or"
                    " leave it out"
                )
                raise PydanticCustomError("figure", problem, {"text": text})
        return brief

    @field_validator("brief")
    @classmethod
    def _place_sources(cls, brief: Brief | None) -> Brief | None:
        """Set where each source of the brief begins: a single one is the whole source."""
        for number, source in enumerate(brief.sources if brief else ()):
            if source.begins is None and brief is not None:
                if len(brief.sources) > 1:
                    raise PydanticCustomError("source_text", "sources.{number}.text: is missing", {"number": number})
                return brief.model_copy(update={"sources": (source.model_copy(update={"begins": 0}),)})
        return brief

    @field_validator("banned_phrases")
    @classmethod
    def _check_terms(cls, phrases: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for term in info.data.get("brand_terms", ()):
            for phrase in phrases:
                if contradicts(term, phrase, info.data.get("locale", "")):
                    raise PydanticCustomError(
                        "contradiction",
                        "bans '{phrase}', which is part of the brand term '{term}'",
                        {"phrase": phrase, "term": term},
                    )
        return phrases

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names that the text may use although the source lacks them."""
        return (*self.brand_terms, self.audience, *self.must_mention)

    @property
    def must_mention(self) -> tuple[str, ...]:
        """Phrases that the piece must have."""
        return self.brief.must_mention if self.brief else ()

    @property
    def must_avoid(self) -> tuple[str, ...]:
        """Phrases that the request or its brief forbids."""
        return (*self.banned_phrases, *(self.brief.must_avoid if self.brief else ()))

    @property
    def reading_level(self) -> ReadingLevel | None:
        """The audience for whom the brief wants the piece to be easy to read."""
        return self.brief.reading_level if self.brief else None

    def origin_of(self, quote: str) -> Origin | None:
        """The source of the brief that a quotation is from."""
        return origin_of(quote, self.source, self.brief.sources) if self.brief and self.brief.sources else None

    def per_length(self, short: T, standard: T, long: T) -> T:
        """The one of three values that belongs to the requested length."""
        return {"short": short, "standard": standard, "long": long}[self.length]


def named_brief(request: Request) -> Brief | None:
    """The brief of a request that only names a stored one."""
    brief = request.brief if isinstance(request, WritingRequest) else None
    return brief if brief and brief.is_reference else None


def _contradiction(field: str, text: str, other: str, phrase: str) -> PydanticCustomError:
    return PydanticCustomError(
        "contradiction",
        "{field} has '{text}', and {other} '{phrase}'; take it out of one of them",
        {"field": field, "text": text, "other": other, "phrase": phrase},
    )
