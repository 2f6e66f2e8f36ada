"""Mentions: the phrases that a brief wants in a piece."""

from __future__ import annotations

from collections.abc import Iterable

from thothy_ai.jobs.api.terms import contains
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason


def mentions(text: str, phrases: Iterable[str]) -> Rejection | None:
    """Reject a text that lacks one of the phrases."""
    missing = ", ".join(repr(phrase) for phrase in phrases if not contains(text, phrase))
    return Rejection(RejectionReason.MUST_MENTION, f"does not mention {missing}") if missing else None
