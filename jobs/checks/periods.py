"""Periods that a text names: years, months, quarters and halves. A statement holds for its period only.

Months are read by their names, in all languages that have names for them in CLDR, and are their numbers here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cache

from thothy_ai.jobs.checks.numerals import SPACED_LETTER
from thothy_ai.jobs.checks.tables import table

Periods = Mapping[str, frozenset[int]]
_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d%])(?![.,]\d)")


def periods(text: str) -> dict[str, frozenset[int]]:
    """The numbers of the periods that a text names, by their kind, in any language; kinds that it lacks are left out.

    Relative periods, such as "last year", are not read.
    """
    found = {"year": frozenset(map(int, _YEAR.findall(text))), "month": frozenset(map(int, named_months(text)))}
    for kind in table("contradiction")["parts_of_year"]:
        found[kind] = frozenset(number for number, pattern in _parts(kind) if pattern.search(text))
    return {kind: numbers for kind, numbers in found.items() if numbers}


def are_apart(one: Periods, other: Periods) -> bool:
    """Whether two texts name periods of one kind, but none that is in both."""
    return any(not one[kind] & other[kind] for kind in one.keys() & other.keys())


@cache
def _parts(kind: str) -> tuple[tuple[int, re.Pattern[str]], ...]:
    """Patterns of the first, second, ... quarter or half of a year: the ordinal before or after its name."""
    names, short = table("contradiction")["parts_of_year"][kind].values()
    parts = []
    for number, ordinal in enumerate(table("contradiction")["ordinals"].values(), start=1):
        digit = rf"第?{number}(?:st|nd|rd|th|er|e|ème|º|ª|\.)?"
        before = rf"(?:(?<!{SPACED_LETTER})(?:{ordinal})\s?|(?<![\d.,]){digit}[\s.-]?)(?:\w{{4,9}}\s)?(?:{names})"
        after = rf"(?:{names})\s(?:ال)?(?:{ordinal})(?!\w)"
        code = rf"(?<!\w)(?:{short}{number}|{number}{short})(?!\w)"
        parts.append((number, re.compile(rf"{before}|{after}|{code}", re.IGNORECASE)))
    return tuple(parts)


_LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sk", "ru", "uk", "bg", "sr", "hr", "sl", "ro", "hu", "fi",
    "sv", "da", "nb", "tr", "el", "ar", "he", "fa", "hi", "th", "vi", "id", "ca",
)  # fmt: skip


_BEFORE = re.compile(r"([^\s\d.,;:()]{3,20})\.?,?\s?(?=\d)")
_AFTER = re.compile(r"(?<=\d)(?:st|nd|rd|th)?\.?(?: de| of| d['’])? ?([^\s\d.,;:()]{3,20})")


def months(text: str) -> set[Decimal]:
    """The numbers of the months that a text names beside a number: {5} for "May 3" and for "3 мая"."""
    plain = text.casefold()
    beside = [match[1] for pattern in (_BEFORE, _AFTER) for match in pattern.finditer(plain)]
    return {number for name in beside for number in _numbers().get(name, ())} if beside else set()


def named_months(text: str) -> set[Decimal]:
    """The numbers of all months that a text names, with or without a number next to them."""
    return {
        number for word in re.findall(r"[^\s\d.,;:()]{3,20}", text.casefold()) for number in _numbers().get(word, ())
    }


def dated_months(text: str, language: str) -> set[Decimal]:
    """The numbers of the months that a text in a language names in full beside a number."""
    names, plain = _full_names(language), text.casefold()
    return {names[match[1]] for pattern in (_BEFORE, _AFTER) for match in pattern.finditer(plain) if match[1] in names}


@cache
def _full_names(language: str) -> dict[str, Decimal]:
    """The full month names of a language, if it has any; empty for an unknown language."""
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415  reads a file per language

    with suppress(UnknownLocaleError):
        forms = Locale("nb" if language == "no" else language).months.values() if language in _LANGUAGES else ()
        return {name.casefold(): Decimal(number) for form in forms for number, name in form["wide"].items()}
    return {}


@cache
def _numbers() -> dict[str, set[Decimal]]:
    """The months that a name can mean. Names are casefolded and lack an abbreviation's full stop."""
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415  reads a file per language

    numbers: dict[str, set[Decimal]] = {}
    for language in _LANGUAGES:
        with suppress(UnknownLocaleError):
            for form in Locale(language).months.values():
                for width in ("wide", "abbreviated"):
                    for number, name in form[width].items():
                        numbers.setdefault(name.casefold().rstrip("."), set()).add(Decimal(number))
    return numbers
