"""Quotations as evidence: where the source has what a model quotes nearly right, and which passage supports a text."""

from __future__ import annotations

from rapidfuzz import fuzz

from thothy_ai.jobs import checks
from thothy_ai.jobs.documents import spans

NEAR_ENOUGH = 88.0  # of 100: differs in a word or two, or in its punctuation
ENOUGH_WORDS = 2  # that a text shares with the sentence that supports it
_EDGES = " \t\n\"'“”„«»‘’‚‹›「」『』…,;:"


def restored(quote: str, source: str) -> str:
    """The quotation as the source has it, if it is there nearly so; otherwise unchanged."""
    bare = quote.strip(_EDGES)
    if not bare or checks.quoted("quote", bare, source) is None:
        return bare
    found = fuzz.partial_ratio_alignment(bare, source, processor=None, score_cutoff=NEAR_ENOUGH)
    if found is None or found.dest_end - found.dest_start < len(bare) // 2:
        return bare
    start, end = _whole_words(source, found.dest_start, found.dest_end)
    return " ".join(source[start:end].split()).strip(_EDGES)


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    while 0 < start < len(text) and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
        end += 1
    return start, end


def evidence(text: str, source: str, locale: str) -> str:
    """The sentence of the source that has the most words in common with a text; empty if none has enough."""
    wanted = _longer_words(text, locale)
    choices = spans(source, locale)
    shared = [len(wanted & _longer_words(choice, locale)) for choice in choices]
    best = max(shared, default=0)
    return choices[shared.index(best)] if best >= ENOUGH_WORDS else ""


def _longer_words(text: str, locale: str) -> set[str]:
    """The words that carry meaning, by their beginnings."""
    return {word[:6] for word in checks.words(text, locale) if len(word) > 3 or not word.isascii()}
