"""Quotations as evidence: where the source has what a model quotes nearly right, and which passage supports a text."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz import fuzz, process, utils

from thothy_ai.jobs import checks
from thothy_ai.jobs.documents import spans

NEAR_ENOUGH = 88.0  # of 100: differs in a word or two, or in its punctuation
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


def evidence(text: str, source: str, locale: str, taken: Sequence[str] = ()) -> str | None:
    """The sentence of the source that has the most in common with a text, none of those `taken`."""
    choices = [span for span in spans(source, locale) if span not in taken]
    best = process.extractOne(text, choices, scorer=fuzz.token_set_ratio, processor=utils.default_process)
    return best[0] if best else None
