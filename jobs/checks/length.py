"""Length: no words, too few, too many, or out of proportion to the original."""

from __future__ import annotations

import re

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.segments import scaled, words
from thothy_ai.jobs.text.strings import counted

# How many Latin letters one character of these scripts is worth.
_DENSE = ((re.compile("[\u3400-\u9fff\uf900-\ufaff]"), 3.0), (re.compile("[\uac00-\ud7a3]"), 2.0),
          (re.compile("[\u3041-\u30ff]"), 1.7))  # fmt: skip
_MIN_PROPORTION, _MAX_PROPORTION = 0.4, 2.5
_LENIENT = 0.85  # share of a lower limit that suffices where the limit had to be converted
_ALWAYS_ALLOWED = 40  # characters: a label of two words may become twice as long


def empty(field: str, text: str) -> Rejection | None:
    """Reject a text without a letter or digit."""
    return None if any(map(str.isalnum, text)) else Rejection(RejectionReason.EMPTY, f"{field} has no words")


def length(field: str, text: str, locale: str, min_words: int, max_words: int) -> Rejection | None:
    """Reject a text with too few or too many words.

    The limits are for English, and converted to the number of words in which the locale's language says as much.
    """
    count = len(words(text, locale))
    least = min_words if scaled(min_words, locale) == min_words else int(_LENIENT * scaled(min_words, locale))
    has = f"{field} has {counted(count, 'word')}"
    if count < least:
        return Rejection(RejectionReason.TOO_SHORT, f"{has}, fewer than {least}")
    return too_long(field, text, locale, max_words)


def too_long(field: str, text: str, locale: str, max_words: int) -> Rejection | None:
    """Reject a text with more words than a language needs for `max_words` English ones."""
    count, most = len(words(text, locale)), scaled(max_words, locale)
    if count <= most:
        return None
    return Rejection(RejectionReason.TOO_LONG, f"{field} has {counted(count, 'word')}, more than {most}")


def proportion(field: str, text: str, original: str) -> Rejection | None:
    """Reject a translation that is far shorter or longer than its original.

    Lengths are in characters, in which Chinese, Japanese and Korean ones count more.
    """
    has, wanted = _letters(text), _letters(original)
    ratio = f"{field} is {has / max(wanted, 1):.1f} times as long as the original"
    if has < _MIN_PROPORTION * (wanted - _ALWAYS_ALLOWED):
        return Rejection(RejectionReason.TOO_SHORT, ratio)
    if has > _MAX_PROPORTION * wanted + _ALWAYS_ALLOWED:
        return Rejection(RejectionReason.TOO_LONG, ratio)
    return None


def _letters(text: str) -> float:
    return len(text) + sum((weight - 1) * len(dense.findall(text)) for dense, weight in _DENSE)
