"""Units of numbers: time, currencies, length, mass, shares; in all languages at once."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from functools import cache, lru_cache
from typing import NamedTuple

from thothy_ai.jobs.checks.quantities import Quantity, quantities
from thothy_ai.jobs.checks.tables import table

_CURRENCIES = {"$": "usd", "€": "eur", "£": "gbp", "₹": "inr", "us$": "usd", "usd": "usd", "eur": "eur", "gbp": "gbp"}
_CURRENCY_BEFORE = re.compile(r"(us\$|\$|€|£|₹|usd|eur|gbp)\s?$", re.IGNORECASE)
# How many of the second unit one of the first is.
_CONVERSIONS = {
    ("year", "month"): 12, ("week", "day"): 7, ("day", "hour"): 24, ("hour", "minute"): 60, ("minute", "second"): 60,
    ("tonne", "kg"): 1000, ("km", "m"): 1000, ("year", "week"): 52, ("month", "week"): 4, ("month", "day"): 30,
    ("gw", "mw"): 1000, ("mw", "kw"): 1000, ("litre", "ml"): 1000, ("km2", "ha"): 100,
}  # fmt: skip
# A day has 24 hours: what a text may say without having it from its source.
CALENDAR = {"hour": frozenset({Decimal(24)}), "day": frozenset({Decimal(7)}), "month": frozenset({Decimal(12)}),
            "minute": frozenset({Decimal(60)})}  # fmt: skip
_MOST = Decimal(10) ** 15  # beyond, nothing is a measure, and a Decimal cannot be rounded
_FORTNIGHT = 15  # days, in French and Spanish


class Unit(NamedTuple):
    """A unit, such as "month", and its family, such as "time"."""

    family: str
    name: str


def unit_of(quantity: Quantity, text: str) -> Unit | None:
    """The unit of a number in a text: what follows it, or the currency before it."""
    if before := _CURRENCY_BEFORE.search(text[max(0, quantity.start - 5) : quantity.start]):
        return Unit("currency", _CURRENCIES[before[1].casefold()])
    match = _any_unit().match(text, quantity.end)
    if not match:
        return None
    family, _, name = str(match.lastgroup).partition("_")
    return Unit(family, name)


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def units(text: str, language: str) -> dict[tuple[Decimal, str], set[str]]:
    """The units of the numbers in digits, by value and family."""
    found: dict[tuple[Decimal, str], set[str]] = defaultdict(set)
    for quantity in quantities(text, language):
        if quantity.spelled or quantity.year:
            continue
        if unit := unit_of(quantity, text):
            for reading in quantity.readings:
                found[reading, unit.family].add(unit.name)
    return found


def names_unit(name: str, family: str, text: str) -> bool:
    """Whether a text has a unit anywhere, with or without a number."""
    return bool(re.search(table("contradiction")["units"][family][name], text, re.IGNORECASE))


def converted(value: Decimal, unit: str) -> dict[str, set[Decimal]]:
    """What a number of a unit is in other units, rounded and rounded down: 38 months are 3 years, two weeks 14 days."""
    found: dict[str, set[Decimal]] = defaultdict(set)
    if value > _MOST:
        return found
    for (large, small), factor in _CONVERSIONS.items():
        if unit == large:
            found[small].add(value * factor)
        elif unit == small:
            exact = value / factor
            found[large] |= {Decimal(int(exact)), exact.quantize(Decimal(1)), exact.quantize(Decimal("0.1")), exact}
    if unit == "week" and value == 2:
        found["day"].add(Decimal(_FORTNIGHT))
    return found


@cache
def _any_unit() -> re.Pattern[str]:
    named = [
        f"(?P<{family}_{name}>{words})"
        for family, entries in table("contradiction")["units"].items()
        for name, words in entries.items()
    ]
    return re.compile(rf"[\s\u00a0-]?(?:{'|'.join(named)})(?![a-zа-яё\u0600-\u06ff])", re.IGNORECASE)
