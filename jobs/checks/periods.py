"""Periods that a text names: years, months, quarters and halves. What it says of one holds for no other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from thothy_ai.jobs.checks.months import named_months
from thothy_ai.jobs.checks.numerals import SPACED_LETTER
from thothy_ai.jobs.checks.tables import table

Periods = Mapping[str, frozenset[int]]
_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d%])(?![.,]\d)")


def periods(text: str) -> dict[str, frozenset[int]]:
    """The numbers of the periods that a text names, by their kind, in any language; kinds that it lacks are left out.

    Words that tell a period by its distance, such as "last year", are not read.
    """
    found = {
        "year": frozenset(map(int, _YEAR.findall(text))),
        "month": frozenset(map(int, named_months(text))),
    }
    for kind in table("contradiction")["parts_of_year"]:
        found[kind] = frozenset(number for number, pattern in _parts(kind) if pattern.search(text))
    return {kind: numbers for kind, numbers in found.items() if numbers}


def are_apart(one: Periods, other: Periods) -> bool:
    """Whether two texts name periods of one kind, but none that is in both."""
    return any(not one[kind] & other[kind] for kind in one.keys() & other.keys())


@cache
def _parts(kind: str) -> tuple[tuple[int, re.Pattern[str]], ...]:
    """What names the first, second, ... part of a year of a kind: its ordinal before or after the part's name."""
    names, short = table("contradiction")["parts_of_year"][kind].values()
    parts = []
    for number, ordinal in enumerate(table("contradiction")["ordinals"].values(), start=1):
        digit = rf"第?{number}(?:st|nd|rd|th|er|e|ème|º|ª|\.)?"
        before = rf"(?:(?<!{SPACED_LETTER})(?:{ordinal})\s?|(?<![\d.,]){digit}[\s.-]?)(?:\w{{4,9}}\s)?(?:{names})"
        after = rf"(?:{names})\s(?:ال)?(?:{ordinal})(?!\w)"
        code = rf"(?<!\w)(?:{short}{number}|{number}{short})(?!\w)"
        parts.append((number, re.compile(rf"{before}|{after}|{code}", re.IGNORECASE)))
    return tuple(parts)
