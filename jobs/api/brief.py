"""`Brief`: what an editor wants of a piece besides its form, and which sources it is made from.

The texts of several sources become the one source of a request, so that siblings share their KV; the brief keeps where
each begins. A stored brief is asked for by its name: the queue puts it in its place when the job is enqueued.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, LiteralString, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from thothy_ai.jobs.api.terms import BannedPhrases, ShortText, Term
from thothy_ai.jobs.channels import MAX_CHARS, Channel
from thothy_ai.jobs.text.phrases import contradicts
from thothy_ai.jobs.text.strings import check_content, check_encodable, strings_in

MAX_SOURCES: Final = 20
MAX_MENTIONS: Final = 20
BRIEF_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
ReadingLevel = Literal["easy", "general", "expert"]


def _matching(pattern: str, code: LiteralString, rule: LiteralString) -> AfterValidator:
    matcher = re.compile(pattern)

    def check(value: str) -> str:
        if not matcher.fullmatch(value):
            raise PydanticCustomError(code, rule)
        return value

    return AfterValidator(check)


_NAME_RULE: Final = "must be at most 60 letters, digits, dots, hyphens and underscores, with a letter or digit first"
BriefName = Annotated[str, _matching(BRIEF_NAME, "brief_name", _NAME_RULE)]
SourceUrl = Annotated[
    str, _matching(r"https?://[^\s<>\"'\\]{1,2000}", "source_url", "must be a URL such as https://example.com/page")
]


class CheckedModel(BaseModel):
    """Base class of user input: each string is encodable, not blank, and at most `MAX_CHARACTERS` long."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_encodable(text)
            check_content(text)
        return value


class Origin(CheckedModel):
    """Where a text comes from, as a citation names it."""

    title: ShortText
    url: SourceUrl | None = None
    author: ShortText | None = None
    date: datetime.date | None = None

    @model_serializer(mode="wrap")
    def _leave_out_what_is_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    @property
    def byline(self) -> str:
        """The author and the date, where they are known."""
        return ", ".join(str(part) for part in (self.author, self.date) if part)


class BriefSource(Origin):
    """A source of a request. Outside a request, `text` is its text; inside, the text is in the request's `source`, from
    `begins` on.
    """

    text: str | None = None
    begins: Annotated[int, Field(ge=0)] | None = None

    @property
    def origin(self) -> Origin:
        """The fields of this source that a citation names."""
        return Origin(title=self.title, url=self.url, author=self.author, date=self.date)


class Brief(CheckedModel):
    """What an editor wants. `name` refers to a stored brief, in its newest version unless `version` is given."""

    name: Annotated[BriefName | None, Field(description="Name of a stored brief, which takes this one's place.")] = None
    version: Annotated[int, Field(ge=1)] | None = None
    angle: Annotated[ShortText | None, Field(description="What the piece is to bring out.")] = None
    must_mention: Annotated[
        tuple[Term, ...], Field(max_length=MAX_MENTIONS, description="Phrases that the piece must have.")
    ] = ()
    must_avoid: Annotated[BannedPhrases, Field(description="Phrases that it may not have.", validate_default=True)] = ()
    reading_level: Annotated[ReadingLevel | None, Field(description="For whom it is to be easy to read.")] = None
    limits: Annotated[
        dict[Channel, Annotated[int, Field(ge=10, le=MAX_CHARS)]],
        Field(description="Characters that a channel has room for, where that is not the usual number."),
    ] = Field(default_factory=dict)
    sources: Annotated[
        tuple[BriefSource, ...],
        Field(max_length=MAX_SOURCES, description="Sources: title, url, author, date and text."),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _take_name(cls, value: Any) -> Any:  # noqa: ANN401  whatever was given
        """Read a plain string as the name of a stored brief."""
        return {"name": value} if isinstance(value, str) else value

    @field_validator("must_avoid")
    @classmethod
    def _check_contradiction(cls, avoided: tuple[str, ...], info: Any) -> tuple[str, ...]:  # noqa: ANN401  pydantic's
        for wanted in info.data.get("must_mention", ()):
            for phrase in avoided:
                if contradicts(wanted, phrase):
                    raise PydanticCustomError(
                        "contradiction",
                        "forbids '{phrase}', which must_mention asks for in '{wanted}'; take it out of one of them",
                        {"phrase": phrase, "wanted": wanted},
                    )
        return avoided

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        if self.version is not None and self.name is None:
            raise PydanticCustomError("brief_version", "version: is that of a stored brief; give its name, too")
        if self.name is not None and self.version is None and not self.is_reference:
            field = next(name for name in type(self).model_fields if name != "name" and getattr(self, name))
            raise PydanticCustomError(
                "brief_name",
                "{field}: cannot be given with the name of a stored brief; leave out one of them",
                {"field": field},
            )
        return self

    def __hash__(self) -> int:  # `limits` is a dictionary
        return hash(self.model_dump_json())

    @property
    def is_reference(self) -> bool:
        """Whether it only names a stored brief."""
        content = (self.angle, self.must_mention, self.must_avoid, self.reading_level, self.limits, self.sources)
        return self.name is not None and not any(content)

    @property
    def text(self) -> str:
        """The texts of all sources, each under its title: the `source` of a request with this brief."""
        return joined_sources(source.model_dump(mode="json") for source in self.sources)[0]


def joined_sources(sources: Iterable[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The texts of sources, each under its title and byline, and the sources with where each begins."""
    text, placed = "", list[dict[str, Any]]()
    for source in sources:
        byline = ", ".join(str(source[name]) for name in ("author", "date") if source.get(name))
        parts = [f"# {source.get('title')}", byline, str(source.get("text") or "").strip()]
        text += "\n\n" * bool(text)
        placed.append({name: value for name, value in source.items() if name != "text"} | {"begins": len(text)})
        text += "\n\n".join(part for part in parts if part)
    return text, placed


def origin_of(quote: str, source: str, sources: tuple[BriefSource, ...]) -> Origin | None:
    """The source that a quotation is from; None if it is in none of them."""
    wanted = " ".join(quote.split()).casefold()
    bounds = pairwise([*(each.begins or 0 for each in sources), len(source)])
    for each, (first, end) in zip(sources, bounds, strict=True):
        if wanted in " ".join(source[first:end].split()).casefold():
            return each.origin
    return None
