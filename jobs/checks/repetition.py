"""Repetition: stutters, sentences used twice, phrases used three times."""

from __future__ import annotations

import re
from collections import Counter

from thothy_ai.jobs.checks.segments import runs, sentences, words
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_STUTTER = re.compile(r"([^\W\d])\1{4,}|([^\w\s])\2{3,}|\b(\w+)(?:\W+\3\b){3,}", re.IGNORECASE)


def repetition(text: str, locale: str) -> Rejection | None:
    """Reject loops: a stutter, a sentence of four words or more used twice, or a run of four words used three times."""
    if stutter := _STUTTER.search(text):
        return Rejection(RejectionReason.REPETITION, f"stutters: {stutter[0][:60]!r}")
    long_sentences = [
        tuple(part) for part in (words(each, locale) for each in sentences(text, locale)) if len(part) >= 4
    ]
    if repeated := _most_common(long_sentences, 2):
        return Rejection(RejectionReason.REPETITION, f"repeats a sentence: {' '.join(repeated)!r}")
    if repeated := _most_common(runs(words(text, locale), 4), 3):
        return Rejection(RejectionReason.REPETITION, f"uses a phrase three times: {' '.join(repeated)!r}")
    return None


def _most_common(items: list[tuple[str, ...]], min_count: int) -> tuple[str, ...] | None:
    item, count = Counter(items).most_common(1)[0] if items else ((), 0)
    return item if count >= min_count else None
