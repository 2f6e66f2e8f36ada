"""Figures that follow from those of a source: differences, multiples, shares in per cent, euros for cents, months."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from itertools import combinations, pairwise

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.quantities import Quantity, in_digits
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import converted, unit_of

_RANGE = 8  # characters between the figures of a range
_REACH = 60  # characters between two figures that may be compared
_SENTENCE_END = re.compile(r"[.!?。！？](?!\d)|\n")
_SHARE = re.compile(r"(?<!\d)(\d|1[0-2])(?!\d)[^\d.;:!?,]{2,24}?(?<!\d)(\d|1[0-2])(?![\d.,])")
_HUNDRED, _MOST = Decimal(100), Decimal(10_000)
_MANY = 40  # years


@cache
def pattern(name: str) -> re.Pattern[str]:
    """What stands beside a number, from the table of numerals: "times", "about", "month", ..."""
    return re.compile(table("numerals")["words"][name], re.IGNORECASE)


def sums(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """Sums and differences of figures that stand together, and amounts in cents as parts of the currency."""
    results = set()
    for one, other in _together(found, text):
        pairs = [(mine, theirs) for mine in one.readings for theirs in other.readings]
        results |= {abs(mine - theirs) for mine, theirs in pairs} | {mine + theirs for mine, theirs in pairs}
    for quantity in found:
        if not quantity.spelled and re.match(
            rf"\s?(?:{pattern('cents').pattern})", text[quantity.end : quantity.end + 12], re.IGNORECASE
        ):
            results |= {reading / _HUNDRED for reading in quantity.readings}
    return results


def shares(found: Sequence[Quantity], text: str, language: str) -> set[Decimal]:
    """What one figure is of the next one, "three of four", and the rest of a share, in per cent, rounded."""
    pairs = [
        (mine, theirs) for one, other in _together(found, text) for mine in one.readings for theirs in other.readings
    ]
    pairs += [(Decimal(one), Decimal(other)) for one, other in _SHARE.findall(in_digits(text, language))]
    given = [
        reading for quantity in found if pattern("percent").match(text, quantity.end) for reading in quantity.readings
    ]
    results = {_HUNDRED - reading for reading in given if reading < _HUNDRED}
    for one, other in pairs:
        part, whole = sorted((one, other))
        if whole:
            results |= _rounded(part / whole * _HUNDRED) | _rounded((whole - part) / whole * _HUNDRED)
        if part:
            results |= _rounded((whole - part) / part * _HUNDRED)
    return results


def _rounded(share: Decimal) -> set[Decimal]:
    return {share.quantize(Decimal(1)), share.quantize(Decimal("0.1"))} if share < _MOST else set()


def spans(found: Sequence[Quantity]) -> set[Decimal]:
    """The numbers of years between the years of a text."""
    years = sorted({reading for quantity in found if quantity.year for reading in quantity.readings if reading > 1500})
    return {other - one for one, other in combinations(years[:_MANY], 2)}


def conversions(found: Sequence[Quantity], text: str) -> dict[str, set[Decimal]]:
    """What the numbers with a unit are in other units: 38 months are 3 years."""
    results: dict[str, set[Decimal]] = defaultdict(set)
    if Decimal("0.5") in numerals.shares(text):
        results |= {"minute": {Decimal(30)}, "month": {Decimal(6)}}
    for quantity in found:
        unit = None if quantity.spelled else unit_of(quantity, text)
        for reading in quantity.readings if unit else ():
            for name, values in converted(reading, unit.name if unit else "").items():
                results[name] |= values
    return results


def multiples(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """How many times one figure is another one that stands near, rounded and rounded down."""
    results = set()
    for one, other in _together(found, text):
        for mine in one.readings:
            for theirs in other.readings:
                low, high = sorted((mine, theirs))
                if low and high / low < _MOST:
                    times = high / low
                    results |= {Decimal(int(times)), times.quantize(Decimal(1)), times.quantize(Decimal("0.1"))}
    return results


def _together(found: Sequence[Quantity], text: str) -> list[tuple[Quantity, Quantity]]:
    """Successive figures of one sentence, of the same unit if they have one."""
    digits = [quantity for quantity in found if not (quantity.spelled or quantity.year)]
    return [
        (one, other)
        for one, other in pairwise(digits)
        if other.start - one.end <= _REACH
        and not _SENTENCE_END.search(text[one.end : other.start])
        and _same_unit(one, other, text)
    ]


def _same_unit(one: Quantity, other: Quantity, text: str) -> bool:
    """Whether two figures have one unit; the first may do without it, as in "from 61 to 47 minutes"."""
    first, second = unit_of(one, text), unit_of(other, text)
    return first == second or (first is None and other.start - one.end <= _RANGE)
