"""Titles copied from the source, and standfirsts that only repeat the title."""

from __future__ import annotations

import re

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized
from thothy_ai.jobs.checks.segments import is_spaced

_MAX_TITLE = 140  # characters: a longer line is not a title
_HEAD = 3  # first lines of a source that may have its title: a byline can precede it
_SAME = 93.0  # per cent
_MIN_WORDS, _MIN_UNSPACED = 3, 6  # words, or characters in a script without spaces
_MARKS = re.compile(r"^[#\s*_>]+|[*_#\s]+$|\s[|–—]\s[^|–—]{2,40}$")
_LABEL = re.compile(r"^(?:title|titel|titre|título|titolo|заголовок|タイトル|标题)\s*[:：]\s*", re.IGNORECASE)


def own_title(title: str, source: str) -> Rejection | None:
    """Reject a title that equals a line at the beginning of the source."""
    lines, one = [line.strip() for line in source.splitlines() if line.strip()], normalized(title)
    for line in lines[:-1][:_HEAD]:
        other = normalized(_LABEL.sub("", _MARKS.sub("", line)))
        alike = fuzz.ratio(one, other) >= _SAME if _tells(other) else " " in one and one == other
        if len(line) <= _MAX_TITLE and alike:
            return Rejection(RejectionReason.REPEATS_TITLE, f"is the source's title: {line[:100]!r}", (0, len(title)))
    return None


def repeated_title(title: str, standfirst: str) -> Rejection | None:
    """Reject a standfirst that contains the title verbatim, or that has few other words, in any order."""
    one, other = normalized(title), normalized(standfirst)
    alike = max(fuzz.ratio(one, other), fuzz.token_sort_ratio(one, other)) >= _SAME
    if one and (alike or (_tells(one) and one in other)):
        return Rejection(RejectionReason.REPEATS_TITLE, f"repeats the title: {title[:100]!r}")
    return None


def _tells(text: str) -> bool:
    """Whether a title is too long to be in another text by chance."""
    least = 8 if is_spaced(text[:1] or " ") else _MIN_UNSPACED
    return len(text) >= least and (len(text.split()) >= _MIN_WORDS or not is_spaced(text[0]))
