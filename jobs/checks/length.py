"""Length: a text without words, with too few or too many, or out of proportion to its original."""

from __future__ import annotations

from thothy_ai.jobs.checks.segments import words
from thothy_ai.jobs.text import counted
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def empty(field: str, text: str) -> Rejection | None:
    """Reject a text without a letter or digit."""
    return None if any(map(str.isalnum, text)) else Rejection(RejectionReason.EMPTY, f"{field} has no words")


def length(field: str, text: str, locale: str, min_words: int, max_words: int) -> Rejection | None:
    """Reject a text with too few or too many words."""
    count = len(words(text, locale))
    has = f"{field} has {counted(count, 'word')}"
    if count < min_words:
        return Rejection(RejectionReason.TOO_SHORT, f"{has}, fewer than {min_words}")
    if count > max_words:
        return Rejection(RejectionReason.TOO_LONG, f"{has}, more than {max_words}")
    return None


def proportion(field: str, text: str, original: str) -> Rejection | None:
    """Reject a translation that is far shorter or longer than its original can become in another language."""
    ratio = len(text) / max(len(original), 1)
    if len(original) >= 80 and not 0.15 <= ratio <= 6:
        reason = RejectionReason.TOO_SHORT if ratio < 1 else RejectionReason.TOO_LONG
        return Rejection(reason, f"{field} is {ratio:.2f} times as long as the original")
    return None
