"""Where a section's quotations belong in its text."""

from __future__ import annotations

from itertools import pairwise

from thothy_ai.jobs.api.artifact import quoted
from thothy_ai.jobs.checks.segments import sentences, words
from thothy_ai.jobs.kinds.report.values import Section
from thothy_ai.jobs.publishing.piece import Cited, Paragraph, Quote

MIN_SHARED_WORDS = 2  # for a quotation to belong to one sentence rather than to its section


def cited(section: Section) -> Paragraph:
    """The section's text, with each quotation after the sentence that shares most words with it. A quotation that
    shares no two words with any sentence goes to the end.
    """
    body, ends, start = section.body, list[int](), 0
    for sentence in sentences(body):
        found = body.find(sentence, start)
        if found >= 0:
            start = found + len(sentence)
            ends.append(start)
    quotes: dict[int, tuple[Quote, ...]] = {}
    for citation in section.citations:
        wanted = _longer_words(citation.quote)
        bounds = pairwise([0, *(ends or [len(body)])])
        shared, end = max((len(wanted & _longer_words(body[start:end])), -end) for start, end in bounds)
        place = -end if shared >= MIN_SHARED_WORDS else len(body)
        quotes[place] = (*quotes.get(place, ()), quoted(citation.quote, citation.source))
    cuts = pairwise(sorted({0, *quotes, len(body)}))
    return Paragraph(tuple(Cited(body[start:end], quotes.get(end, ())) for start, end in cuts))


def _longer_words(text: str) -> set[str]:
    return {word for word in words(text) if len(word) > 3 or not word.isascii() or word.isdigit()}
