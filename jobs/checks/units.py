"""Units of numbers: time, currencies, length, mass, shares; in all languages at once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache, lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numerals import SPACED_LETTER
from thothy_ai.jobs.checks.quantities import Quantity, quantities, span_of
from thothy_ai.jobs.checks.tables import table

_CURRENCIES = {"$": "usd", "€": "eur", "£": "gbp", "₹": "inr", "us$": "usd", "usd": "usd", "eur": "eur", "gbp": "gbp"}
_CURRENCY_BEFORE = re.compile(r"(us\$|(?<![A-Za-z])\$|€|£|₹|usd|eur|gbp)\s?$", re.IGNORECASE)
# One unit in the smallest unit of its family; months and years have their average length.
_SIZES = {
    "time": {
        "second": "1", "minute": "60", "hour": "3600", "day": "86400", "week": "604800", "month": "2629800",
        "year": "31557600",
    },
    "length": {
        "mm": "1", "cm": "10", "inch": "25.4", "foot": "304.8", "yard": "914.4", "m": "1000", "km": "1000000",
        "mile": "1609344",
    },
    "mass": {
        "gram": "1", "ounce": "28.35", "lb": "453.6", "jin": "500", "kg": "1000", "quintal": "100000",
        "tonne": "1000000",
    },
    "power": {"kw": "1", "mw": "1000", "gw": "1000000"},
    "volume": {"ml": "1", "cl": "10", "pint": "520", "litre": "1000", "gallon": "3785", "hl": "100000"},
    "area": {
        "sqft": "0.0929", "m2": "1", "pyeong": "3.306", "mu": "667", "dunam": "1000", "acre": "4047", "ha": "10000",
        "km2": "1000000", "sqmi": "2590000",
    },
    "speed": {"kmh": "1", "mph": "1.609"},
}  # fmt: skip
_NEAR = Decimal("0.075")  # how far a converted measure may be rounded; a fortnight is 15 days in French
_NEAR_IF_SMALL = Decimal("0.12")  # a measure of one digit
# Common knowledge, such as that a day has 24 hours: needs no source.
CALENDAR = {
    name: frozenset(map(Decimal, numbers))
    for name, numbers in {"hour": (24,), "day": (7, 365), "week": (52,), "month": (12,), "minute": (60,)}.items()
}
_MAX_VALUE = Decimal(10) ** 15  # larger numbers are no measures, and as Decimals cannot be rounded
_DIGIT = 10
_SMALL = 12  # numbers up to here often stand in words, whose units are not read
_CURRENCY_CHARS = 5  # before a number


class Unit(NamedTuple):
    """A unit, such as "month", and its family, such as "time"."""

    family: str
    name: str


class Measure(NamedTuple):
    """A number with its unit, and its size in the smallest unit of its family; degrees are Celsius."""

    family: str
    name: str
    size: Decimal


def unit_of(quantity: Quantity) -> Unit | None:
    """The unit of a number: what follows it, or the currency before it."""
    return _unit_between(quantity.before[-_CURRENCY_CHARS:], quantity.after)


@lru_cache(maxsize=4096)  # a number is asked for its unit with each number near it
def _unit_between(before: str, after: str) -> Unit | None:
    if currency := _CURRENCY_BEFORE.search(before):
        return Unit("currency", _CURRENCIES[currency[1].casefold()])
    match = _any_unit().match(after)
    if not match:
        return None
    family, _, name = str(match.lastgroup).partition("_")
    return Unit(family, name)


def other_unit(text: str, source: str, language: str, original: str) -> Rejection | None:
    """Reject a number that the source has only with another unit of the same family."""
    known = _units(source, original)
    for (value, family), mine in _units(text, language).items():
        theirs = known.get((value, family), {})
        if not theirs or theirs.keys() & mine.keys():
            continue
        # A small number may be in words in the source, so its unit is searched anywhere in it.
        names = (table("contradiction")["units"][family][name] for name in (mine if value <= _SMALL else ()))
        anywhere = (rf"(?<!{SPACED_LETTER})(?:{name})(?![a-zß-ɏа-яё\u0600-\u06ff])" for name in names)
        if not any(re.search(each, source, re.IGNORECASE) for each in anywhere):
            detail = f"{value.normalize():f} is {'/'.join(sorted(mine))}, in the source {'/'.join(sorted(theirs))}"
            spans = span_of(next(iter(mine.values())), text), span_of(next(iter(theirs.values())), source)
            return Rejection(RejectionReason.CONTRADICTS_SOURCE, detail, *spans)
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _units(text: str, language: str) -> dict[tuple[Decimal, str], dict[str, Quantity]]:
    """The units of the numbers in digits, by value and family, each with its first number."""
    found: dict[tuple[Decimal, str], dict[str, Quantity]] = defaultdict(dict)
    for quantity in quantities(text, language):
        if quantity.spelled or quantity.year:
            continue
        if unit := unit_of(quantity):
            for reading in quantity.readings:
                found[reading, unit.family].setdefault(unit.name, quantity)
    return found


def names_time(text: str) -> bool:
    """Whether a text has a unit of time, such as "a month" or "jährlich", with or without a number."""
    words = (*table("contradiction")["units"]["time"].values(), table("numerals")["words"]["per_time"])
    return re.search("|".join(words), text, re.IGNORECASE) is not None


def measures(found: Iterable[Quantity]) -> list[Measure]:
    """The numbers with a convertible unit; 1 h 30 min also as one measure."""
    results = [measure for quantity in found for measure in _measures_of(quantity)]
    pairs = pairwise(results)
    return results + [
        Measure(one.family, "", one.size + two.size)
        for one, two in pairs
        if one.family == two.family and one.name != two.name and one.size > two.size
    ]


def converts(quantity: Quantity, known: Iterable[Measure]) -> bool:
    """Whether a number is a known measure in another unit, rounded: 91 m for 300 feet, 3 years for 38 months."""
    for mine, other in product(_measures_of(quantity), known):
        if mine.family != other.family or mine.name == other.name:
            continue
        difference = other.size - mine.size
        if mine.family == "temperature":
            agrees = abs(difference) <= 1
        else:
            unit = Decimal(_SIZES[mine.family][mine.name])
            near = other.size * (_NEAR_IF_SMALL if mine.size < _DIGIT * unit else _NEAR)
            agrees = abs(difference) <= near or (mine.family == "time" and 0 <= difference < unit <= mine.size)
        if agrees:
            return True
    return False


def _measures_of(quantity: Quantity) -> Iterator[Measure]:
    unit = unit_of(quantity)
    for value in quantity.readings if unit else ():
        if unit and value < _MAX_VALUE:
            if unit.family == "temperature":
                yield Measure(*unit, value if unit.name == "celsius" else (value - 32) * 5 / 9)
            elif unit.name in _SIZES.get(unit.family, ()):
                yield Measure(*unit, value * Decimal(_SIZES[unit.family][unit.name]))


@cache
def _any_unit() -> re.Pattern[str]:
    named = [
        f"(?P<{family}_{name}>{words})"
        for family, entries in table("contradiction")["units"].items()
        for name, words in entries.items()
    ]
    return re.compile(rf"[\s\u00a0-]{{0,2}}(?:{'|'.join(named)})(?![a-zß-ɏа-яё\u0600-\u06ff])", re.IGNORECASE)
