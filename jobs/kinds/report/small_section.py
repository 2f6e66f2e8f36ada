"""A section by a small model: single sentences, each for a short task of its own; those that cannot be published leave.

Such a model neither chooses evidence nor keeps several sentences together. Each sentence that stays is supported by the
sentence of the source that has most in common with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import PydanticCustomError

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Call, Context, Output, stopped
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.evidence import evidence
from thothy_ai.jobs.kinds.report.faults import prose_faults
from thothy_ai.jobs.kinds.report.values import Brief, Citation, Section
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans import small_models as plain
from thothy_ai.jobs.schema import object_schema
from thothy_ai.jobs.text.strings import check_encodable

MIN_SENTENCES, MAX_SENTENCES = 2, 3
CHARS = (30, 150)  # of a sentence
MIN_SHARE = 0.45  # of its longer words that the source has: such a model soon talks of anything
TASKS = (
    "Explain to {audience} in one sentence {subject}.",
    "Summarize the text above for {audience} in one sentence.",
    "Say in one sentence who in the text above does what.",
    "Explain to {audience} in one sentence why this is happening.",
    "Say to {audience} in one sentence what the difficulty is.",
)


def plain_calls(brief: Brief, text: str, request: WritingRequest[Any], context: Context) -> tuple[Call, ...]:
    """One call for each task."""
    sentence = plain.sentence(request.locale, *CHARS, text)
    schema = object_schema({"sentence": sentence})
    tasks = (task.format(audience=request.audience, subject=brief.covers or brief.heading) for task in TASKS)
    calls = (plain.call(request, text, task, schema, context, step="section") for task in tasks)
    return tuple(retries.adapted(call, context, request.locale) for call in calls)


def plain_section(
    brief: Brief, outputs: Sequence[Output], text: str, request: WritingRequest[Any]
) -> Section | Rejection:
    """The section of those sentences that can be published; why the first cannot, if there are too few."""
    kept, rejection = _kept(outputs, text, request)
    if len(kept) < MIN_SENTENCES:
        return rejection
    return Section(heading=brief.heading, body=" ".join(kept), citations=_citations(kept, text, request.locale))


def anything_stands(outputs: Sequence[Output], text: str, request: WritingRequest[Any]) -> bool:
    """Whether one of the sentences can be published. Where none can, five more seldom make two that do."""
    return bool(_kept(outputs, text, request)[0])


def _kept(outputs: Sequence[Output], text: str, request: WritingRequest[Any]) -> tuple[list[str], Rejection]:
    """The sentences that can be published, and why the last of the others cannot."""
    kept: list[str] = []
    rejection = Rejection(RejectionReason.EMPTY, "no sentence could be read")
    for output in outputs:
        sentence = _sentence(output)
        found = sentence if isinstance(sentence, Rejection) else _fault(sentence, tuple(kept), text, request)
        if found:
            rejection = found
        elif len(kept) < MAX_SENTENCES:
            kept.append(str(sentence))
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


@lru_cache(maxsize=64)  # a plan is replayed at each step
def _fault(sentence: str, kept: tuple[str, ...], text: str, request: WritingRequest[Any]) -> Rejection | None:
    return next(filter(None, _faults(sentence, kept, text, request)), None)


def _faults(
    sentence: str, kept: tuple[str, ...], text: str, request: WritingRequest[Any]
) -> Iterator[Rejection | None]:
    yield from prose_faults("sentence", sentence, text, request)
    yield checks.off_topic(sentence, text, request.locale, MIN_SHARE)
    yield checks.near_duplicate(sentence, kept)


def _citations(kept: Sequence[str], text: str, locale: str) -> tuple[Citation, ...]:
    quotes = dict.fromkeys(evidence(sentence, text, locale) for sentence in kept)
    return tuple(Citation(quote=quote) for quote in quotes if quote)
