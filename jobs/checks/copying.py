"""Copying: how much of a text stands verbatim in its source, and whether a quotation does."""

from __future__ import annotations

from thothy_ai.jobs.checks.segments import words
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def copied(
    field: str, text: str, source: str, locale: str, max_share: float = 0.5, max_run: int = 12
) -> Rejection | None:
    """Reject a text that has more than `max_run` consecutive words, or `max_share` of its words, from the source."""
    written = words(text, locale)
    known = f" {' '.join(words(source, locale))} "
    run, total = _matches(written, known)
    if len(run) > max_run:
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{field} copies: {' '.join(run)!r}")
    if written and total / len(written) > max_share:
        share = f"{total / len(written):.0%}"
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{share} of {field} stands verbatim in the source")
    return None


def _matches(written: list[str], known: str, min_run: int = 5) -> tuple[list[str], int]:
    """The longest run of words that is in `known`, and the number of words in runs of at least `min_run`."""
    longest: list[str] = []
    total = start = 0
    while start < len(written):
        end = start
        while end < len(written) and f" {' '.join(written[start : end + 1])} " in known:
            end += 1
        longest = max(longest, written[start:end], key=len)
        total += end - start if end - start >= min_run else 0
        start = max(end, start + 1)
    return longest, total


def quoted(field: str, quote: str, source: str) -> Rejection | None:
    """Reject a quotation that is not in the source, apart from case, white space and the style of quotation marks."""
    if _normalized(quote) in _normalized(source):
        return None
    return Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, f"{field} is not in the source: {quote[:80]!r}")


def _normalized(text: str) -> str:
    return " ".join("".join(char if char.isalnum() else " " for char in text.casefold()).split())
