"""The language of a text."""

from __future__ import annotations

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.checks.segments import sentences
from thothy_ai.jobs.locales import language_of
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def wrong_language(text: str, locale: str) -> Rejection | None:
    """Reject a text in a language other than the requested one, as a whole or in over a third of its characters.

    Text with fewer than fifteen letters could be in any language and passes.
    """
    if sum(map(str.isalpha, text)) < 15 or (detect.is_in(text, locale) and _foreign_share(text, locale) <= 1 / 3):
        return None
    detected, confidence = next(iter(detect.confidences(text).items()))
    expected = language_of(locale).name
    return Rejection(
        RejectionReason.WRONG_LANGUAGE, f"expected {expected}, detected {detected.capitalize()} ({confidence:.2f})"
    )


def _foreign_share(text: str, locale: str) -> float:
    """The share of characters in sentences of another language, counting only those of at least 40 characters."""
    parts = sentences(text, locale)
    if len(parts) < 2:
        return 0.0
    foreign = [part for part in parts if len(part) >= 40 and not detect.is_in(part, locale, min_confidence=0.05)]
    return sum(map(len, foreign)) / sum(map(len, parts))
