"""Numbers: those that the source does not have, and those that a translation loses or adds."""

from __future__ import annotations

import re

from thothy_ai.jobs.verdict import Rejection, RejectionReason

_NUMBER = re.compile(r"\d+(?:[.,' ’]\d{3})*(?:[.,]\d+)?")
_NUMBER_WORDS = {
    word: str(value)
    for value, word in [
        *enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=1),
        *enumerate(("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"), start=11),
        *((17, "seventeen"), (18, "eighteen"), (19, "nineteen"), (20, "twenty"), (30, "thirty"), (40, "forty")),
        *((50, "fifty"), (60, "sixty"), (70, "seventy"), (80, "eighty"), (90, "ninety"), (100, "hundred")),
    ]
}


def new_number(text: str, source: str, locale: str) -> Rejection | None:  # noqa: ARG001
    """Reject a number that is not in the source. Separators are ignored (1,200 equals 1.200); "three" counts as 3."""
    known = _numbers(source) | {
        _NUMBER_WORDS[word] for word in re.findall(r"\w+", source.lower()) if word in _NUMBER_WORDS
    }
    for match in _NUMBER.finditer(text):
        if _digits(match[0]) not in known:
            return Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, f"{match[0]!r} is not in the source")
    return None


def numbers_kept(text: str, original: str, source_locale: str, locale: str) -> Rejection | None:  # noqa: ARG001
    """Reject a translation with a number that its original lacks."""
    return new_number(text, original, locale)


def _numbers(text: str) -> set[str]:
    return {_digits(match[0]) for match in _NUMBER.finditer(text)}


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))
