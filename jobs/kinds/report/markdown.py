"""A report as one Markdown document, whose citations are footnotes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from thothy_ai.jobs.checks.segments import sentences, words
from thothy_ai.jobs.kinds.report.values import Section

MIN_SHARED_WORDS = 2  # for a quotation to belong to one sentence rather than to its section


def markdown_of(title: str, summary: str, sections: Sequence[Section]) -> str:
    """The document: title, summary, sections with marks of footnotes, footnotes."""
    numbers: dict[str, int] = {}
    for section in sections:
        for citation in section.citations:
            numbers.setdefault(citation.quote, len(numbers) + 1)
    parts = [f"# {title}", summary]
    for section in sections:
        parts += [f"## {section.heading}", _with_marks(section, numbers)]
    on_one_line = ((" ".join(quote.split()), number) for quote, number in numbers.items())
    notes = "\n".join(f"[^{number}]: “{quote}”" for quote, number in on_one_line)
    return "\n\n".join([*parts, notes] if notes else parts) + "\n"


def _with_marks(section: Section, numbers: dict[str, int]) -> str:
    """The section's text with the mark of each quotation behind the sentence that shares most words with it.

    If none shares two words, it stands at the end of the text.
    """
    body, ends, start = section.body, list[int](), 0
    for sentence in sentences(body):
        found = body.find(sentence, start)
        if found >= 0:
            start = found + len(sentence)
            ends.append(start)
    marks: dict[int, str] = {}
    for citation in section.citations:
        wanted = _longer_words(citation.quote)
        bounds = pairwise([0, *(ends or [len(body)])])
        shared, end = max((len(wanted & _longer_words(body[start:end])), -end) for start, end in bounds)
        place = -end if shared >= MIN_SHARED_WORDS else len(body)
        marks[place] = marks.get(place, "") + f"[^{numbers[citation.quote]}]"
    cuts = sorted({0, *marks, len(body)})
    return "".join(body[start:end] + marks.get(end, "") for start, end in pairwise(cuts))


def _longer_words(text: str) -> set[str]:
    return {word for word in words(text) if len(word) > 3 or not word.isascii() or word.isdigit()}
