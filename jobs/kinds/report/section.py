"""A section of a report: its calls, and the section in their outputs. Evidence comes first, then the text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from pydantic import Field, create_model
from pydantic_core import from_json

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.plan import Call, Context, End, Output, Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.evidence import quotation
from thothy_ai.jobs.kinds.report.faults import RULES, early_prose
from thothy_ai.jobs.kinds.report.small_section import plain_calls, plain_section
from thothy_ai.jobs.kinds.report.values import MAX_SENTENCE_CHARS, Brief, Citation, Section, Size, size_of
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.outputs import parse
from thothy_ai.jobs.prompts import about_source, style
from thothy_ai.jobs.schema import MIN_SENTENCE_CHARS, grammar_schema, line, prose


class _Draft(Artifact):
    quotes: tuple[str, ...]
    paragraphs: tuple[str, ...]


@cache
def _draft_class(size: Size) -> type[_Draft]:
    """The class of outputs for a size: their grammar, and what they are parsed as."""
    quote = Annotated[str, line(1, 1_000)]
    paragraph = Annotated[str, prose(MIN_SENTENCE_CHARS, size.sentences[1] * MAX_SENTENCE_CHARS)]
    return create_model(
        "SectionDraft",
        __base__=_Draft,
        quotes=(Annotated[tuple[quote, ...], Field(min_length=size.quotes[0], max_length=size.quotes[1])], ...),
        paragraphs=(
            Annotated[tuple[paragraph, ...], Field(min_length=size.paragraphs[0], max_length=size.paragraphs[1])],
            ...,
        ),
    )


def section_calls(brief: Brief, text: str, request: WritingRequest[Any], context: Context) -> tuple[Call, ...]:
    """The calls that write a section about a text; one, unless the model is small.

    The one call has no locale, since it begins with quotations of the source.
    """
    if context.plain:
        return plain_calls(brief, text, request, context)
    schema = _schema(size_of(request), text, request.locale)
    call = Call(
        about_source(text, _instruction(brief, request), context),
        schema,
        Sampling(max_tokens(schema, request.locale, context), temperature=0.4, top_p=0.9, repetition_penalty=1.02),
        step="section",
        early=early_prose(("paragraphs",), text, request, 2 * size_of(request).words[1]),
    )
    return (retries.adapted(call, context, request.locale),)


def _schema(size: Size, text: str, locale: str) -> Mapping[str, Any]:
    schema = grammar_schema(_draft_class(size))
    schema["properties"]["quotes"]["items"] = quotation(text, locale)
    return schema


def _instruction(brief: Brief, request: WritingRequest[Any]) -> str:
    subject = brief.covers or brief.heading
    least, most = size_of(request).words
    whole = f" of the report {brief.report}" if brief.report else ""
    evidence = f" It may rest on: {'; '.join(f'“{quote}”' for quote in brief.quotes)}." if brief.quotes else ""
    return (
        f"Write the section “{brief.heading}”{whole}, for {request.audience}: {least} to {most} words. It explains:"
        f" {subject}{_stop(subject)}{evidence} {RULES}{style(request)}"
    )


def _stop(text: str) -> str:
    return "" if text.endswith((".", "!", "?", "。")) else "."


def _closed(output: Output) -> Output:
    """An output that was stopped for a fault, as a whole one as far as it goes: the fault is found again in it, and the
    sections beside it can be kept.
    """
    if output.end is not End.REJECTED:
        return output
    with suppress(ValueError, TypeError):  # a lone surrogate raises one or the other
        found = from_json(output.text, allow_partial="trailing-strings")
        if isinstance(found, dict) and "paragraphs" in found:
            return Output(json.dumps(found, ensure_ascii=False))
    return output


def section_of(
    brief: Brief, outputs: Sequence[Output], text: str, request: WritingRequest[Any], context: Context
) -> Section | Rejection:
    """The section in the outputs of its calls, or why there is none."""
    if context.plain:
        return plain_section(brief, outputs, text, request)
    draft = parse(_draft_class(size_of(request)), _closed(outputs[0]))
    if isinstance(draft, Rejection):
        return outputs[0].rejection or draft  # of one that was stopped, what it was stopped for
    citations = tuple(Citation(quote=quote) for quote in dict.fromkeys(draft.quotes))
    return Section(heading=brief.heading, body="\n\n".join(draft.paragraphs), citations=citations)
