"""Faults of a report's section, and of any prose about a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Early
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.kinds.report.values import Section, size_of
from thothy_ai.jobs.plans.judging import judgement
from thothy_ai.jobs.plans.writing import given

MIN_WORDS = 12  # of a body: a low minimum, since content decides and not length
MAX_SHARE_COPIED = 0.6  # of a body, which may quote
MIN_SHARE_OF_SOURCE = 0.12  # of a body's longer words; sections about another subject share 11 % at most
RULES = (
    "First choose the quotations that support what you will say. Then write the paragraphs in your own words: "
    "no sentence of the source, no heading, no list, nothing that the source does not say."
)


EARLY = (  # the checks of `prose_faults` that later text cannot change
    "refusal", "meta_talk", "unsafe_markup", "banned", "loop", "echo", "copied_passage", "new_name",
)  # fmt: skip


def early_prose(fields: tuple[str, ...], text: str, request: WritingRequest[Any], max_words: int) -> Early:
    """The checks that can end prose about a text while it is written."""
    return Early(
        fields, (*EARLY, "too_long"), text, request.locale, joined=True, instruction=RULES, max_words=max_words,
        allowed=request.own_names, banned=request.must_avoid,
    )  # fmt: skip


@judgement(kept=64)
def section_faults(
    section: Section,
    text: str,
    request: WritingRequest[Any],
    others: tuple[Section, ...] = (),
    topic: str | None = None,
) -> Iterator[Rejection | None]:
    """Faults and doubts of a section about a text. `others` are the sections before it in the report; `topic` is what
    the producer asked for.
    """
    if not section.citations:
        yield Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, f"{section.heading!r} cites nothing").at("citations")
    for number, citation in enumerate(section.citations):
        for found in (checks.quoted("citation", citation.quote, text), checks.unsafe_markup(citation.quote)):
            yield found and found.at("citations", number, "quote")
    least, most = size_of(request).words
    evidence = "\n".join(citation.quote for citation in section.citations)
    of_body = (
        checks.length("body", section.body, request.locale, min(least // 3, MIN_WORDS), 2 * most),
        *prose_faults("body", section.body, text, request),
        checks.off_topic(section.body, text, request.locale, MIN_SHARE_OF_SOURCE, topic, evidence),
        checks.mentions(
            f"{section.heading} {section.body}", request.must_mention if topic is not None else (), request.locale
        ),
        checks.near_duplicate(section.body, [other.body for other in others]),
    )
    yield from (found.at("body") for found in of_body if found)


def prose_faults(field: str, prose: str, text: str, request: WritingRequest[Any]) -> Iterator[Rejection | None]:
    """Faults and doubts of any prose about a text."""
    yield checks.empty(field, prose)
    yield checks.refusal(prose, text)
    yield checks.meta_talk(prose, text)
    yield checks.unsafe_markup(prose)
    yield checks.banned(prose, request.must_avoid, request.locale)
    yield checks.unfinished(field, prose, request.locale)
    yield checks.repetition(prose, request.locale)
    yield checks.echo(prose, RULES)
    yield checks.wrong_language(prose, request.locale)
    yield checks.foreign_letters(prose, given(request), request.locale)
    yield checks.copied(field, prose, text, request.locale, max_share=MAX_SHARE_COPIED)
    yield checks.new_number(prose, text, request.locale)
    yield checks.new_name(prose, text, request.locale, allowed=request.own_names)
    yield checks.misquoted(prose, text, request.locale)
    yield checks.contradiction(prose, text, request.locale)
    yield checks.unknown_words(prose, text, request.locale)
    yield checks.slip(prose, request.locale)
    yield checks.too_hard(prose, request.reading_level, request.locale)
    yield checks.obeys_source(prose, text)
