"""Form: a text that stops in mid-sentence."""

from __future__ import annotations

import re

from thothy_ai.jobs.verdict import Rejection, RejectionReason

_CLOSING = "\"'”’“‘»«›‹)]}）」』】》〉*_ \n"
_ENDINGS = (".", "!", "?", "…", "。", "！", "？", "．", "｡", "।", "؟", "۔", "։", "።", ":", "：")
_ABBREVIATED = re.compile(r"\b(?:Dr|Mrs?|Ms|Prof|St|No|Nr|vs|e\.g|i\.e|ca|approx|z\. ?B|bzw|d\. ?h)\.$")


def unfinished(field: str, text: str, locale: str) -> Rejection | None:  # noqa: ARG001
    """Reject a text that stops in mid-sentence."""
    if text.rstrip(_CLOSING).endswith(_ENDINGS) and not _ABBREVIATED.search(text):
        return None
    return Rejection(RejectionReason.TRUNCATED, f"{field} stops in mid-sentence: …{text[-30:]!r}")
