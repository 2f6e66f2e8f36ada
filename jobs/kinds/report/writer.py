"""The calls for the texts of a report, and the parsing of their outputs. Evidence comes first, then the text."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from thothy_ai.jobs.kinds.report.values import MAX_SENTENCE_CHARS, Citation, Section, SectionBrief, Size, size_of
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.outputs import parse
from thothy_ai.jobs.prompts import about_source, style
from thothy_ai.jobs.schema import MIN_SENTENCE_CHARS, grammar_schema, line, prose


class _SectionOutput(Artifact):
    quotes: tuple[str, ...]
    paragraphs: tuple[str, ...]


@cache
def _output_class(size: Size) -> type[_SectionOutput]:
    """The class of outputs for a size: gives their grammar and parses them."""
    quote = Annotated[str, line(1, 1_000)]
    paragraph = Annotated[str, prose(MIN_SENTENCE_CHARS, size.sentences[1] * MAX_SENTENCE_CHARS)]
    return create_model(
        "SectionDraft",
        __base__=_SectionOutput,
        quotes=(Annotated[tuple[quote, ...], Field(min_length=size.quotes[0], max_length=size.quotes[1])], ...),
        paragraphs=(
            Annotated[tuple[paragraph, ...], Field(min_length=size.paragraphs[0], max_length=size.paragraphs[1])],
            ...,
        ),
    )


class Writer:
    """Asks for each text in one detailed call. `SmallModelWriter` is the alternative for small models."""

    repairs_outlines = True  # whether an outline with faults is asked for again

    def outline_instruction(self, sections: int, topic: str, request: WritingRequest[Any]) -> str:
        """An empty topic stands for what the source is about."""
        about = topic or "what the source is about"
        return (
            f"Plan a report for {request.audience} about {about}: a title that says what is new, and {sections} "
            "sections that do not overlap, in an order that a reader can follow. For each section give a heading of a "
            "few words, one sentence that says what it covers, and the quotations from the source that it rests on. "
            f"Plan no section for which the source has no evidence.{style(request)}"
        )

    def summary_instruction(self, sections: Sequence[Section], request: WritingRequest[Any]) -> str:
        """Ask for a summary of these sections."""
        report = "\n\n".join(f"{section.heading}\n{section.body}" for section in sections)
        return (
            f"Below is a report about the source. Write the summary that stands at its top, for {request.audience}: "
            f"two to four sentences with the most important findings, in your own words.{style(request)}\n\n"
            f"<report>\n{report}\n</report>"
        )

    def section_calls(
        self, brief: SectionBrief, text: str, request: WritingRequest[Any], context: Context
    ) -> tuple[Call, ...]:
        """The calls that write a section about a text: a single call, without a locale, since its output begins with
        quotations.
        """
        size, subject = size_of(request), brief.covers or brief.heading
        schema = grammar_schema(_output_class(size))
        schema["properties"]["quotes"]["items"] = quotation(text, request.locale)
        whole = f" of the report {brief.report}" if brief.report else ""
        stop = "" if subject.endswith((".", "!", "?", "。")) else "."
        evidence = f" It may rest on: {'; '.join(f'“{quote}”' for quote in brief.quotes)}." if brief.quotes else ""
        instruction = (
            f"Write the section “{brief.heading}”{whole}, for {request.audience}: {size.words[0]} to {size.words[1]} "
            f"words. It explains: {subject}{stop}{evidence} {RULES}{style(request)}"
        )
        call = Call(
            about_source(text, instruction, context),
            schema,
            Sampling(max_tokens(schema, request.locale, context), temperature=0.4, top_p=0.9, repetition_penalty=1.02),
            step="section",
            early=early_prose(("paragraphs",), text, request, 2 * size.words[1]),
        )
        return (retries.adapted(call, context, request.locale),)

    def section_of(
        self, brief: SectionBrief, outputs: Sequence[Output], _text: str, request: WritingRequest[Any]
    ) -> Section | Rejection:
        """The section in the outputs of its calls, or why there is none."""
        answer = outputs[0]
        if answer.end is End.REJECTED:
            # Read an output that was stopped for a fault as far as it goes: the checks find the fault again, and the
            # other sections can be kept.
            with suppress(ValueError, TypeError):  # a lone surrogate raises one or the other
                found = from_json(answer.text, allow_partial="trailing-strings")
                if isinstance(found, dict) and "paragraphs" in found:
                    answer = Output(json.dumps(found, ensure_ascii=False))
        output = parse(_output_class(size_of(request)), answer)
        if isinstance(output, Rejection):
            return outputs[0].rejection or output  # the reason, if the output was stopped
        citations = tuple(
            Citation(quote=quote, source=request.origin_of(quote)) for quote in dict.fromkeys(output.quotes)
        )
        return Section(heading=brief.heading, body="\n\n".join(output.paragraphs), citations=citations)

    def kept(self, _outputs: Sequence[Output]) -> Sequence[Output]:
        """The outputs that the repair of a section uses."""
        return ()

    def may_be_repaired(self, _outputs: Sequence[Output], _text: str, _request: WritingRequest[Any]) -> bool:
        """Whether another call may give a section that could not be read from these outputs."""
        return True
