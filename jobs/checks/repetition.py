"""Repetition: stutters, loops, sentences used twice, and phrases used again and again."""

from __future__ import annotations

import re
from collections import Counter

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.segments import runs, scaled, sentences, words

_STUTTER = re.compile(r"([^\W\d_])\1{4,}|([^\w\s.…·=_*#~|`-])\2{3,}|([.…])\3{6,}", re.IGNORECASE)
_MAX_PERIOD = 16  # words
_SHORT = 60  # words: in a shorter text, a phrase used three times stands out
_MAX_REPEATED_SHARE = 0.25


def repetition(text: str, locale: str) -> Rejection | None:
    """Reject a stutter, a loop, a sentence of four words or more used twice, or a phrase of four used too often."""
    if rejection := loop(text, locale):
        return rejection
    found = words(text, locale)
    phrases = runs(found, scaled(4, locale))
    counts = Counter(phrases)
    repeated = sum(count - 1 for count in counts.values())
    if len(phrases) >= 20 and repeated / len(phrases) > _MAX_REPEATED_SHARE:
        return _repeats(counts.most_common(1)[0][0])
    return _repeats(_most_common(phrases, 3) if len(found) <= scaled(_SHORT, locale) else None)


def loop(text: str, locale: str) -> Rejection | None:
    """Reject a stutter, a loop, or a sentence of four words or more used twice."""
    stutter = _STUTTER.search(text)
    if stutter:
        return Rejection(RejectionReason.REPETITION, f"stutters: {stutter[0][:60]!r}")
    found = words(text)
    for period in range(1, _MAX_PERIOD + 1):
        needed = max(2 * period, 3 if period == 1 else 4)  # a word four times, or three periods of a phrase or more
        run = 0  # of successive words that equal the ones a period later
        for end, (one, other) in enumerate(zip(found, found[period:], strict=False), start=1):
            run = run + 1 if one == other and not one.isdigit() else 0
            if run == needed:
                looped = " ".join(found[end - needed : end + period])
                return Rejection(RejectionReason.REPETITION, f"stutters: {looped[:60]!r}")
    parts = (tuple(words(each, locale)) for each in sentences(text, locale))
    return _repeats(_most_common([part for part in parts if len(part) >= scaled(4, locale)], 2))


def _repeats(phrase: tuple[str, ...] | None) -> Rejection | None:
    return Rejection(RejectionReason.REPETITION, f"repeats {' '.join(phrase)[:120]!r}") if phrase else None


def _most_common(items: list[tuple[str, ...]], min_count: int) -> tuple[str, ...] | None:
    item, count = Counter(items).most_common(1)[0] if items else ((), 0)
    return item if count >= min_count else None
