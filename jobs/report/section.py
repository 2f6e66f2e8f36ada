"""A section of a report: its call, and what may be wrong with it. Evidence is chosen first, then text is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from thothy_ai.jobs import checks, plain, retries
from thothy_ai.jobs.budget import max_tokens
from thothy_ai.jobs.kind import Artifact
from thothy_ai.jobs.one_call import parse
from thothy_ai.jobs.plan import Call, Context, Output, Sampling
from thothy_ai.jobs.prompts import about_source, in_language, style
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.schema import grammar_schema, line, sentences
from thothy_ai.jobs.spans import quotation
from thothy_ai.jobs.verdict import Rejection, RejectionReason

MAX_SENTENCE_CHARS = 260
MAX_HEADING_CHARS = 120
MIN_WORDS = 14  # of a body; what it says decides, not how long it is
MAX_SHARE_COPIED = 0.6  # of a body, which may quote
RULES = (
    "First choose the quotations that support what you will say. Then write the paragraphs in your own words: "
    "no sentence of the source, no heading, no list, nothing that the source does not say."
)
NO_EVIDENCE = Rejection(RejectionReason.EMPTY, "the source has no sentence that a report could rest on")


class Citation(BaseModel):
    """Evidence: a span of the source."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    quote: Annotated[str, Field(min_length=1, max_length=1_000)]


class Section(Artifact):
    """A section. Paragraphs are separated by blank lines."""

    heading: Annotated[str, line(1, MAX_HEADING_CHARS)]
    body: Annotated[str, Field(min_length=1, max_length=10_000)]
    citations: Annotated[tuple[Citation, ...], Field(max_length=12)] = ()


@dataclass(frozen=True)
class Brief:
    """What a section is to be: what it covers, and quotations that it may rest on. `report` names the whole, if any."""

    heading: str
    covers: str = ""
    quotes: tuple[str, ...] = ()
    report: str = ""


@dataclass(frozen=True)
class Size:
    """How long a section is: paragraphs of so many sentences, its words, and how many quotations support it."""

    paragraphs: tuple[int, int]
    sentences: tuple[int, int]
    words: tuple[int, int]
    quotes: tuple[int, int]


def size_of(request: WritingRequest[Any]) -> Size:
    """The size of a section that belongs to the requested length."""
    return request.per_length(
        Size((1, 1), (2, 4), (30, 90), (1, 2)),
        Size((1, 2), (2, 5), (60, 200), (1, 3)),
        Size((2, 4), (3, 5), (150, 450), (2, 5)),
    )


# Of a small model: whole sentences, one by one, without figures. It does not know when to stop otherwise.
_PLAIN = Size((2, 3), (1, 1), (0, 0), (1, 1))
_PLAIN_SENTENCE_CHARS = (30, 160)


class _Draft(Artifact):
    quotes: tuple[str, ...]
    paragraphs: tuple[str, ...]


@cache
def _draft_class(size: Size) -> type[_Draft]:
    """The class of outputs for a size: their grammar, and what they are parsed as."""
    quote = Annotated[str, line(1, 1_000)]
    paragraph = Annotated[str, sentences(*size.sentences, MAX_SENTENCE_CHARS)]
    return create_model(
        "SectionDraft",
        __base__=_Draft,
        quotes=(Annotated[tuple[quote, ...], Field(min_length=size.quotes[0], max_length=size.quotes[1])], ...),
        paragraphs=(
            Annotated[tuple[paragraph, ...], Field(min_length=size.paragraphs[0], max_length=size.paragraphs[1])],
            ...,
        ),
    )


def section_call(brief: Brief, text: str, request: WritingRequest[Any], context: Context) -> Call:
    """The call that writes a section about a text. It has no locale, since it begins with quotations of the source."""
    schema = _schema(_size(request, context), text, request.locale)
    budget = max_tokens(schema, request.locale, context)
    call = Call(
        about_source(text, _instruction(brief, request, context), context),
        schema,
        Sampling(max_tokens=budget, temperature=0.4, top_p=0.9, repetition_penalty=1.02),
        step="section",
    )
    return retries.adapted(call, context, request.locale)


def _schema(size: Size, text: str, locale: str) -> Mapping[str, Any]:
    schema = grammar_schema(_draft_class(size))
    schema["properties"]["quotes"]["items"] = quotation(text, locale)
    if size is _PLAIN:
        schema["properties"]["paragraphs"]["items"] = plain.sentence(locale, *_PLAIN_SENTENCE_CHARS)
    return schema


def _size(request: WritingRequest[Any], context: Context) -> Size:
    return _PLAIN if context.plain else size_of(request)


def _instruction(brief: Brief, request: WritingRequest[Any], context: Context) -> str:
    subject = brief.covers or brief.heading
    if context.plain:
        asked = f"Explain to {request.audience} in three sentences {subject}, with facts of the text above."
        return asked if request.locale.startswith("en") else asked + in_language(request.locale)
    least, most = size_of(request).words
    whole = f" of the report {brief.report}" if brief.report else ""
    evidence = f" It may rest on: {'; '.join(f'“{quote}”' for quote in brief.quotes)}." if brief.quotes else ""
    return (
        f"Write the section “{brief.heading}”{whole}, for {request.audience}: {least} to {most} words. It explains:"
        f" {subject}{_stop(subject)}{evidence} {RULES}{style(request)}"
    )


def _stop(text: str) -> str:
    return "" if text.endswith((".", "!", "?", "。")) else "."


def section_of(brief: Brief, output: Output, request: WritingRequest[Any], context: Context) -> Section | Rejection:
    """The section in an output, or why there is none."""
    draft = parse(_draft_class(_size(request, context)), output)
    if isinstance(draft, Rejection):
        return draft
    citations = tuple(Citation(quote=quote) for quote in dict.fromkeys(draft.quotes))
    body = (" " if context.plain else "\n\n").join(draft.paragraphs)
    return Section(heading=brief.heading, body=body, citations=citations)


@lru_cache(maxsize=64)  # a plan is replayed at each step
def section_fault(
    section: Section,
    text: str,
    request: WritingRequest[Any],
    others: tuple[Section, ...] = (),
    topic: str | None = None,
) -> Rejection | None:
    """The first thing that is wrong with a section about a text.

    `others` are those before it in its report; `topic` is what the producer asked for.
    """
    found = (
        *_faults(section, text, request),
        checks.off_topic(section.body, text, request.locale, 0.2, topic=topic),
        checks.near_duplicate(section.body, [other.body for other in others]),
    )
    return next(filter(None, found), None)


def _faults(section: Section, text: str, request: WritingRequest[Any]) -> Iterator[Rejection | None]:
    if not section.citations:
        yield Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, f"{section.heading!r} cites nothing")
    for citation in section.citations:
        yield checks.quoted("citation", citation.quote, text)
    least, most = size_of(request).words
    yield checks.length("body", section.body, request.locale, min(least // 3, MIN_WORDS), 2 * most)
    yield from prose_faults("body", section.body, text, request)


def prose_faults(field: str, prose: str, text: str, request: WritingRequest[Any]) -> Iterator[Rejection | None]:
    """What may be wrong with any prose about a text."""
    yield checks.empty(field, prose)
    yield checks.refusal(prose)
    yield checks.meta_talk(prose)
    yield checks.unsafe_markup(prose)
    yield checks.banned(prose, request.banned_phrases)
    yield checks.unfinished(field, prose, request.locale)
    yield checks.repetition(prose, request.locale)
    yield checks.echo(prose, RULES)
    yield checks.wrong_language(prose, request.locale)
    yield checks.copied(field, prose, text, request.locale, max_share=MAX_SHARE_COPIED)
    yield checks.new_number(prose, text, request.locale)
    yield checks.new_name(prose, text, request.locale, allowed=request.brand_terms)
    yield checks.contradiction(prose, text, request.locale)
    yield checks.obeys_source(prose, text)
