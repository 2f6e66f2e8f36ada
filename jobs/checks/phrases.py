"""Phrases that a producer has banned."""

from __future__ import annotations

import re
from collections.abc import Iterable

from thothy_ai.jobs.verdict import Rejection, RejectionReason


def banned(text: str, phrases: Iterable[str]) -> Rejection | None:
    """Reject a text that contains a banned phrase, in any case, as whole words."""
    for phrase in phrases:
        if re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE):
            return Rejection(RejectionReason.BANNED_PHRASE, f"contains {phrase!r}")
    return None
