"""Figures that follow from those of a source: differences, multiples, shares in per cent, euros for cents, months."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import combinations, pairwise

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.months import named_months
from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import unit_of

_RANGE = 8  # characters between the figures of a range
_REACH = 60  # characters between two figures that may be compared
_SENTENCE_END = re.compile(r"[.!?。！？](?!\d)|\n")
_SHARE = re.compile(r"(?<!\d)(\d|1[0-2])(?!\d)[^\d.;:!?,]{2,24}?(?<!\d)(\d|1[0-2])(?![\d.,])")
_QUARTER = re.compile(r"\b[QTК]([1-4])\b|\b([1-4])Q\b")
_HUNDRED, _MOST = Decimal(100), Decimal(10_000)
_CENTS_REACH = 16  # characters between an amount and its cents
_MANY = 40  # years
_MOST_ADDED = 5
_BETWEEN, _FURTHER = 2, 120  # figures that may stand between two of one unit, and characters


@cache
def pattern(name: str) -> re.Pattern[str]:
    """What stands beside a number, from the table of numerals: "times", "about", "month", ..."""
    return re.compile(table("numerals")["words"][name], re.IGNORECASE)


def sums(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """Differences of figures that stand together, sums of up to five, and amounts in cents as parts of the currency."""
    results = set()
    for one, other in _together(found, text):
        pairs = [(mine, theirs) for mine in one.readings for theirs in other.readings]
        results |= {abs(mine - theirs) for mine, theirs in pairs} | {mine + theirs for mine, theirs in pairs}
    for listed in _lists(found, text):
        results |= {sum(values, Decimal(0)) for values in _runs(listed)}
    return results | {reading / _HUNDRED for quantity in found if _in_cents(quantity) for reading in quantity.readings}


def _in_cents(quantity: Quantity) -> bool:
    return bool(re.match(rf"\s?(?:{pattern('cents').pattern})", quantity.after, re.IGNORECASE))


def _lists(found: Sequence[Quantity], text: str) -> Iterator[list[Quantity]]:
    """The figures that stand together, in succession."""
    listed: list[Quantity] = []
    for one, other in _together(found, text):
        if listed and listed[-1] is one:
            listed.append(other)
        else:
            yield listed
            listed = [one, other]
    yield listed


def _runs(listed: Sequence[Quantity]) -> Iterator[list[Decimal]]:
    for size in range(3, _MOST_ADDED + 1):
        for start in range(len(listed) - size + 1):
            yield [min(quantity.readings) for quantity in listed[start : start + size]]


def with_cents(found: Sequence[Quantity]) -> set[Decimal]:
    """Amounts with their cents: 45.5 for 45 roubles 50 kopecks."""
    return {
        amount + cents / _HUNDRED
        for one, other in pairwise(found)
        if _in_cents(other) and other.start - one.end <= _CENTS_REACH
        for amount in one.readings
        for cents in other.readings
    }


def in_cents(found: Sequence[Quantity]) -> set[Decimal]:
    """Amounts of a currency as cents."""
    return {reading * _HUNDRED for quantity in found if not quantity.year for reading in quantity.readings}


def shares(found: Sequence[Quantity], text: str, language: str) -> set[Decimal]:
    """What one figure is of another one near it, "three of four", "a fifth", and the rest of each, in per cent."""
    pairs = [
        (mine, theirs)
        for one, other in _together(found, text, _BETWEEN)
        for mine in one.readings
        for theirs in other.readings
    ]
    pairs += [(Decimal(one), Decimal(other)) for one, other in _SHARE.findall(in_digits(text, language))]
    given = [reading for quantity in found if is_percent(quantity) for reading in quantity.readings]
    results = {_HUNDRED - reading for reading in given if reading < _HUNDRED}
    for one, other in [*pairs, *numerals.fractions(text)]:
        part, whole = sorted((one, other))
        if whole:
            results |= _rounded(part / whole * _HUNDRED) | _rounded((whole - part) / whole * _HUNDRED)
        if part:
            results |= _rounded((whole - part) / part * _HUNDRED)
    return results


def of_fractions(text: str) -> set[Decimal]:
    """The fractions of a text in per cent: 20 and 80 for "a fifth"."""
    shares = [part / whole * _HUNDRED for part, whole in numerals.fractions(text) if whole]
    return {near for share in shares for near in _rounded(share)}


def quarters(text: str) -> set[Decimal]:
    """The quarters of a year that a text tells of, by number or by their months."""
    named = {Decimal(one or other) for one, other in _QUARTER.findall(text)}
    return named | numerals.ordinals(text) | {(month - 1) // 3 + 1 for month in named_months(text)}


def is_percent(quantity: Quantity) -> bool:
    """Whether a number is one of per cent."""
    return bool(pattern("percent").match(quantity.after) or pattern("percent_before").search(quantity.before))


def _rounded(share: Decimal) -> set[Decimal]:
    if not 1 <= share < _MOST or _HUNDRED - 1 < share < _HUNDRED:
        return set()
    return {share.quantize(Decimal(1)), share.quantize(Decimal("0.1")), Decimal(int(share))}


def spans(found: Sequence[Quantity]) -> set[Decimal]:
    """The numbers of years between the years of a text."""
    return {other - one for one, other in combinations(_years(found), 2)}


def other_years(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """The years that a text tells by their distance: the one before 2024, or "five years later"."""
    near = Decimal(1) if pattern("next_year").search(text) else Decimal(0)
    distances = {near} | {
        reading
        for quantity in found
        for reading in quantity.readings
        if (unit := unit_of(quantity)) and unit.name == "year" and reading <= _HUNDRED
    }
    return {year + sign * distance for year in _years(found) for distance in distances for sign in (-1, 1)}


def centuries(found: Sequence[Quantity]) -> set[Decimal]:
    """The centuries of the years of a text."""
    return {Decimal((int(year) - 1) // 100 + 1) for year in _years(found)}


def _years(found: Sequence[Quantity]) -> list[Decimal]:
    years = {reading for quantity in found if quantity.year for reading in quantity.readings if 1000 < reading < 2200}
    return sorted(years)[:_MANY]


def multiples(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """How many times one figure is another one that stands near, rounded and rounded down."""
    results = set()
    for one, other in _together(found, text, _BETWEEN):
        for mine in one.readings:
            for theirs in other.readings:
                low, high = sorted((mine, theirs))
                if low and high / low < _MOST:
                    times = high / low
                    results |= {Decimal(int(times)), times.quantize(Decimal(1)), times.quantize(Decimal("0.1"))}
    return results


def _together(found: Sequence[Quantity], text: str, between: int = 0) -> list[tuple[Quantity, Quantity]]:
    """Figures of one sentence, of the same unit if they have one, with up to so many others between them."""
    digits = [quantity for quantity in found if not (quantity.spelled or quantity.year)]
    near = [pair for pair in pairwise(digits) if pair[1].start - pair[0].end <= _REACH and _same_unit(*pair)]
    apart = (pair for step in range(2, between + 2) for pair in zip(digits, digits[step:], strict=False))
    near += [pair for pair in apart if pair[1].start - pair[0].end <= _FURTHER and _have_one_unit(*pair)]
    return [(one, other) for one, other in near if not _SENTENCE_END.search(text[one.end : other.start])]


def _same_unit(one: Quantity, other: Quantity) -> bool:
    """Whether two figures have one unit; the first may do without it, as in "from 61 to 47 minutes"."""
    first, second = unit_of(one), unit_of(other)
    return first == second or (first is None and other.start - one.end <= _RANGE)


def _have_one_unit(one: Quantity, other: Quantity) -> bool:
    return unit_of(one) == unit_of(other) is not None
