"""A report as one Markdown document, whose citations are footnotes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    notes = "\n".join(f"[^{number}]: “{_on_one_line(quote)}”" for quote, number in numbers.items())
    return "\n\n".join([*parts, notes] if notes else parts) + "\n"


def _with_marks(section: Section, numbers: dict[str, int]) -> str:
    """The section's text with the mark of each quotation behind the sentence that shares most words with it."""
    ends = _sentence_ends(section.body)
    marks: dict[int, str] = {}
    for citation in section.citations:
        end = _place(section.body, ends, citation.quote)
        marks[end] = marks.get(end, "") + f"[^{numbers[citation.quote]}]"
    bounds = sorted({0, *marks, len(section.body)})
    return "".join(section.body[start:end] + marks.get(end, "") for start, end in pairwise(bounds))


def _sentence_ends(body: str) -> list[int]:
    ends, start = [], 0
    for sentence in sentences(body):
        found = body.find(sentence, start)
        if found >= 0:
            start = found + len(sentence)
            ends.append(start)
    return ends or [len(body)]


def _place(body: str, ends: list[int], quote: str) -> int:
    """Where the sentence ends that shares the most words with a quotation; the end of the text if none shares two."""
    wanted = _longer_words([quote])
    shared = [(len(wanted & _longer_words([body[start:end]])), -end) for start, end in pairwise([0, *ends])]
    most, end = max(shared)
    return -end if most >= MIN_SHARED_WORDS else len(body)


def _longer_words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in words(text) if len(word) > 3 or not word.isascii() or word.isdigit()}


def _on_one_line(quote: str) -> str:
    return " ".join(quote.split())
