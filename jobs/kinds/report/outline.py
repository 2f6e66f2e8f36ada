"""The outline of a report: its title, and each section's coverage with supporting spans of the source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.plan import Call, Context, Early, Output, Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.evidence import quotation
from thothy_ai.jobs.kinds.report.values import SectionBrief
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.outputs import parse
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import grammar_schema, line, sentences, title

MAX_TITLE_CHARS, MAX_TOPIC_CHARS, MAX_QUOTES = 100, 200, 2


class _Topic(BaseModel):
    heading: Annotated[str, title(4, 80)]
    covers: Annotated[str, sentences(1, 1, MAX_TOPIC_CHARS)]
    quotes: Annotated[tuple[Annotated[str, line(1, 1_000)], ...], Field(min_length=1, max_length=MAX_QUOTES)]


class Outline(Artifact):
    """A report's title, and its sections in order."""

    title: Annotated[str, title(8, MAX_TITLE_CHARS)]
    sections: tuple[_Topic, ...]

    def briefs(self) -> tuple[SectionBrief, ...]:
        """The briefs of the sections."""
        headings = ", ".join(f"“{topic.heading}”" for topic in self.sections)
        report = f"“{self.title}”, whose sections are {headings}"
        return tuple(SectionBrief(topic.heading, topic.covers, topic.quotes, report) for topic in self.sections)


@cache
def _outline_class(sections: int) -> type[Outline]:
    of_this_many = Annotated[tuple[_Topic, ...], Field(min_length=sections, max_length=sections)]
    return create_model("Outline", __base__=Outline, sections=(of_this_many, ...))


def outline_call(text: str, sections: int, instruction: str, request: WritingRequest[Any], context: Context) -> Call:
    """The call that plans a report of `sections` sections."""
    schema = grammar_schema(_outline_class(sections))
    schema["properties"]["sections"]["items"]["properties"]["quotes"]["items"] = quotation(text, request.locale)
    certain = ("distinct", "refusal", "banned", "unsafe_markup", "meta_talk", "new_name")
    early = Early(  # the checks of `heading_faults` that are final once a heading is written
        ("title", "heading"), certain, text, request.locale, allowed=request.own_names, banned=request.must_avoid
    )
    call = Call(
        about_source(text, instruction, context),
        schema,
        Sampling(max_tokens=max_tokens(schema, request.locale, context), temperature=0.4, top_p=0.9),
        step="outline",
        locale=request.locale,
        early=early,
    )
    return retries.adapted(call, context, request.locale)


def outline_of(output: Output, sections: int) -> Outline | Rejection:
    """The outline in an output, or why there is none."""
    return parse(_outline_class(sections), output)


def outline_faults(outline: Outline, text: str, request: WritingRequest[Any]) -> Iterator[Rejection | None]:
    """Faults and doubts of an outline of a report about a text."""
    yield from heading_faults(outline.title, [topic.heading for topic in outline.sections], text, request)
    for topic in outline.sections:
        for quote in topic.quotes:
            yield checks.quoted("quotation", quote, text)


def heading_faults(
    title_: str, headings: list[str], text: str, request: WritingRequest[Any]
) -> Iterator[Rejection | None]:
    """Faults and doubts of a report's title and headings."""
    places: list[tuple[str | int, ...]] = [("title",)]
    places += (("sections", number, "heading") for number in range(len(headings)))
    distinct = {" ".join(heading.casefold().split()) for heading in [title_, *headings]}
    if len(distinct) <= len(headings):
        yield Rejection(RejectionReason.NEAR_DUPLICATE, "two headings are the same")
    if repeated := checks.own_title(title_, text):
        yield repeated.at("title")
    for place, heading in zip(places, [title_, *headings], strict=True):
        found = (
            checks.empty(str(place[-1]), heading),
            checks.refusal(heading),
            checks.banned(heading, request.must_avoid, request.locale),
            checks.unsafe_markup(heading),
            checks.meta_talk(heading, text),
            checks.obeys_source(heading, text),
            checks.new_number(heading, text, request.locale),
        )
        yield from (each.at(*place) for each in found if each)
    yield checks.wrong_language(". ".join([title_, *headings]), request.locale)
    for place, heading in zip(places, [title_, *headings], strict=True):
        name = checks.new_name(heading, text, request.locale, allowed=request.own_names)
        yield name and name.at(*place)
