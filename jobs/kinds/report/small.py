"""A report by a small model: sections of single sentences, each the answer to a short task of its own. A small model
cannot choose evidence or write several coherent sentences. Each sentence that stays is supported by the source's
sentence that has most in common with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Call, Context, Output, stopped
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.evidence import evidence
from thothy_ai.jobs.kinds.report.faults import prose_faults
from thothy_ai.jobs.kinds.report.values import Citation, Section, SectionBrief
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans import retries, small_models
from thothy_ai.jobs.plans.judging import gate_in, judgement, worst
from thothy_ai.jobs.prompts import in_language, mention
from thothy_ai.jobs.schema import object_schema
from thothy_ai.jobs.text.strings import check_encodable

MIN_SENTENCES, MAX_SENTENCES = 2, 3
CHARS = (30, 150)  # of a sentence
MIN_SHARE = 0.45  # of its longer words must be in the source: a small model soon digresses
TASKS = (
    "Explain to {audience} in one sentence {subject}.",
    "Summarize the text above for {audience} in one sentence.",
    "Say in one sentence who in the text above does what.",
    "Explain to {audience} in one sentence why this is happening.",
    "Say to {audience} in one sentence what the difficulty is.",
)


class SmallModelWriter(Writer):
    """Asks in one sentence, and for one sentence at a time. Outlines are not repaired: a second try hardly
    ever helps.
    """

    repairs_outlines = False

    def outline_instruction(self, sections: int, topic: str, request: WritingRequest[Any]) -> str:
        """An empty topic stands for what the text is about."""
        about = topic or "the text above"
        return f"Outline a report about {about} in {sections} sections.{in_language(request.locale)}"

    def summary_instruction(self, _sections: Sequence[Section], request: WritingRequest[Any]) -> str:
        """Ask for a summary of the source: given the sections, a small model would repeat them."""
        asked = f"Summarize the text above for {request.audience} in two sentences."
        return f"{asked}{mention(request)}{in_language(request.locale)}"

    def section_calls(
        self, brief: SectionBrief, text: str, request: WritingRequest[Any], context: Context
    ) -> tuple[Call, ...]:
        """One call for each task."""
        schema = object_schema({"sentence": small_models.sentence(request.locale, *CHARS, text)})
        tasks = (task.format(audience=request.audience, subject=brief.covers or brief.heading) for task in TASKS)
        calls = (small_models.call(request, text, task, schema, context, step="section") for task in tasks)
        return tuple(retries.adapted(call, context, request.locale) for call in calls)

    def section_of(
        self, brief: SectionBrief, outputs: Sequence[Output], text: str, request: WritingRequest[Any]
    ) -> Section | Rejection:
        """The section of the publishable sentences; if there are too few, the fault of one that is not."""
        kept, rejection = _publishable(outputs, text, request)
        if len(kept) < MIN_SENTENCES:
            return rejection
        quotes = dict.fromkeys(evidence(sentence, text, request.locale) for sentence in kept)
        citations = tuple(Citation(quote=quote, source=request.origin_of(quote)) for quote in quotes if quote)
        return Section(heading=brief.heading, body=" ".join(kept), citations=citations)

    def kept(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """All outputs, so that the repair keeps the publishable sentences."""
        return outputs

    def may_be_repaired(self, outputs: Sequence[Output], text: str, request: WritingRequest[Any]) -> bool:
        """Whether any sentence is publishable. If none is, five more seldom yield the two that are needed."""
        return bool(_publishable(outputs, text, request)[0])


def _publishable(outputs: Sequence[Output], text: str, request: WritingRequest[Any]) -> tuple[list[str], Rejection]:
    """The publishable sentences, and the fault of the last one that is not. Sentences without doubts come first; the
    others are used only if these are too few.
    """
    kept: list[str] = []
    doubtful: list[str] = []
    rejection = Rejection(RejectionReason.EMPTY, "no sentence could be read")
    for output in outputs:
        sentence = _sentence(output)
        if isinstance(sentence, Rejection):
            rejection = sentence
        elif found := worst(_faults(sentence, tuple(kept), text, request), request.locale):
            rejection = found
            doubtful.append(sentence)
        elif len(kept) < MAX_SENTENCES:
            kept.append(sentence)
    for sentence in doubtful:
        if len(kept) < MIN_SENTENCES and not gate_in(_faults(sentence, tuple(kept), text, request), request.locale):
            kept.append(sentence)
    return kept, rejection


def _sentence(output: Output) -> str | Rejection:
    if rejection := stopped(output):
        return rejection
    try:
        sentence = str(json.loads(output.text)["sentence"])
        check_encodable(sentence)
    except (ValueError, KeyError, TypeError, PydanticCustomError):
        return Rejection(RejectionReason.OFF_SCHEMA, "the output is not the JSON that was asked for")
    return sentence


@judgement(kept=64)
def _faults(
    sentence: str, kept: tuple[str, ...], text: str, request: WritingRequest[Any]
) -> Iterator[Rejection | None]:
    yield from prose_faults("sentence", sentence, text, request)
    yield checks.off_topic(sentence, text, request.locale, MIN_SHARE)
    yield checks.near_duplicate(sentence, kept)
