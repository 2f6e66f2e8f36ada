"""Names of months beside a number, in all languages that have names for them in CLDR, as the months' numbers."""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from functools import cache

_LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sk", "ru", "uk", "bg", "sr", "hr", "sl", "ro", "hu", "fi",
    "sv", "da", "nb", "tr", "el", "ar", "he", "fa", "hi", "th", "vi", "id", "ca",
)  # fmt: skip


def months(text: str) -> set[Decimal]:
    """The numbers of the months that a text names beside a number: {5} for "May 3" and for "3 мая"."""
    if not any(map(str.isdigit, text)):
        return set()
    pattern, numbers = _table()
    named = (match["before"] or match["after"] for match in pattern.finditer(text.casefold()))
    return {number for name in named for number in numbers[name]}


@cache
def _table() -> tuple[re.Pattern[str], dict[str, set[Decimal]]]:
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415  reads a file per language

    numbers: dict[str, set[Decimal]] = {}
    for language in _LANGUAGES:
        with suppress(UnknownLocaleError):
            for form in Locale(language).months.values():
                for width in ("wide", "abbreviated"):
                    for number, name in form[width].items():
                        numbers.setdefault(name.casefold().rstrip("."), set()).add(Decimal(number))
    usable = (re.escape(name) for name in numbers if not name.isdigit() and len(name) > 2)
    names = "|".join(sorted(usable, key=len, reverse=True))
    after = rf"\d(?:st|nd|rd|th)?\.?(?: de| of| d['’])? ?(?P<after>{names})(?!\w)"
    return re.compile(rf"(?<!\w)(?P<before>{names})\.?,?\s?\d|{after}"), numbers
