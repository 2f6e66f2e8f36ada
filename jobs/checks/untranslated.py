"""Translations that are, in part, their original."""

from __future__ import annotations

from thothy_ai.jobs.checks.segments import sentences, words
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def untranslated(text: str, original: str, locale: str) -> Rejection | None:
    """Reject a translation with a sentence of six words or more that stands in the original."""
    known = f" {' '.join(words(original))} "
    for sentence in sentences(text, locale):
        part = words(sentence)
        if len(part) >= 6 and f" {' '.join(part)} " in known:
            return Rejection(RejectionReason.UNTRANSLATED, f"is not translated: {sentence[:80]!r}")
    return None
