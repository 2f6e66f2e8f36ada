"""Titles: one that is the source's own, and a standfirst that only repeats it."""

from __future__ import annotations

import re

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized

_MAX_TITLE = 140  # characters of a source's first line that may be its title
_SAME = 93.0  # per cent
_MIN_WORDS = 3
_MARKS = re.compile(r"^[#\s*_>]+|[*_#\s]+$")


def own_title(title: str, source: str) -> Rejection | None:
    """Reject a title that is the source's, which is its first line if that ends no sentence."""
    first = _MARKS.sub("", source.lstrip().partition("\n")[0])
    is_title = "\n" in source.strip() and len(first) <= _MAX_TITLE and not first.endswith((".", "。", "…", ","))
    one, other = normalized(title), normalized(first)
    if is_title and len(one) >= 8 and len(other.split()) >= _MIN_WORDS and fuzz.ratio(one, other) >= _SAME:
        return Rejection(RejectionReason.REPEATS_TITLE, f"is the source's title: {first[:100]!r}", (0, len(title)))
    return None


def repeated_title(title: str, standfirst: str) -> Rejection | None:
    """Reject a standfirst that has the title in it, word for word, or says little else."""
    one, other = normalized(title), normalized(standfirst)
    if len(one.split()) >= _MIN_WORDS and (one in other or fuzz.ratio(one, other) >= _SAME):
        return Rejection(RejectionReason.REPEATS_TITLE, f"repeats the title: {title[:100]!r}")
    return None
