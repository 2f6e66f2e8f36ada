"""Copying: how much of a text stands verbatim in its source, and whether a quotation does."""

from __future__ import annotations

import re
import unicodedata

from thothy_ai.jobs.checks.segments import is_spaced, runs, scaled, words
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_GRAM = 5  # words that must agree before a passage counts as shared
_MIN_RUN = 7  # words that a passage must have to count towards the share; names and figures are shorter
_QUOTATION = re.compile(
    r"“[^”“]{3,400}”|„[^“”„]{3,400}[“”]|«[^«»]{3,400}»|»[^«»]{3,400}«|「[^「」]{3,400}」|\"[^\"]{3,400}\""
)
_OMISSION = re.compile(r"\s*[\[(]?(?:…|\.\.\.)[\])]?\s*")


def copied(
    field: str, text: str, source: str, locale: str, max_share: float = 0.5, max_run: int = 12
) -> Rejection | None:
    """Reject a text that has more than `max_run` consecutive words, or `max_share` of its words, from the source.

    Words are English ones, and converted for other languages. What the text puts in quotation marks may be longer, and
    counts towards the share only.
    """
    passages = _shared(words(text, locale), words(source, locale))
    longest = max(passages, key=len, default=[])
    if len(longest) > scaled(max_run, locale) and not _is_quotation(longest, text, locale):
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{field} copies: {' '.join(longest)[:160]!r}")
    total = len(words(text, locale))
    long_enough = min(scaled(_MIN_RUN, locale), total)
    share = sum(len(passage) for passage in passages if len(passage) >= long_enough) / max(total, 1)
    if share > max_share:
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{share:.0%} of {field} stands verbatim in the source")
    return None


def _shared(written: list[str], source: list[str]) -> list[list[str]]:
    """The passages whose every run of five words is in the source; in time linear in both."""
    size = min(_GRAM, max(len(written), 1))
    known = set(runs(source, size))
    passages: list[list[str]] = []
    last = -2
    for start, gram in enumerate(runs(written, size)):
        if gram not in known:
            continue
        if start == last + 1:
            passages[-1].append(gram[-1])
        else:
            passages.append(list(gram))
        last = start
    return passages


def _is_quotation(passage: list[str], text: str, locale: str) -> bool:
    wanted = "".join(passage)
    return any(wanted in "".join(words(quotation, locale)) for quotation in _QUOTATION.findall(text))


def quoted(field: str, quote: str, source: str) -> Rejection | None:
    """Reject a quotation that is not in the source, apart from case, white space, punctuation and omissions ("…")."""
    parts = list(filter(None, map(normalized, _OMISSION.split(quote))))
    known = normalized(source)
    position = 0
    for part in parts:
        position = _find(part, known, position)
        if position < 0:
            break
    if parts and position >= 0:
        return None
    return Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, f"{field} is not in the source: {quote[:80]!r}")


def normalized(text: str) -> str:
    """Casefolded words in compatibility form, with single spaces for all that is neither letter, mark nor digit."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(char if _is_word(char) else " " for char in plain).split())


def _is_word(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char).startswith("M")


def _find(part: str, text: str, start: int) -> int:
    """The end of `part` in `text`, where it begins and ends at the borders of words; -1 if it is not there."""
    found = text.find(part, start)
    while found >= 0:
        end = found + len(part)
        if not (_joined(text, found) or _joined(text, end)):
            return end
        found = text.find(part, found + 1)
    return -1


def _joined(text: str, position: int) -> bool:
    """Whether a position is within a word of a script that has spaces between words."""
    return 0 < position < len(text) and is_spaced(text[position - 1]) and is_spaced(text[position])
