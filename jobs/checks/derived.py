"""Figures that follow from those of a source: differences, multiples, shares in per cent, euros for cents, months."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from itertools import combinations

from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.tables import table

_NEAR = 3  # figures of a source that stand together, and may be compared
_SMALL = 12  # up to here, "three of four" is a share
_HUNDRED = Decimal(100)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """What stands beside a number, from the table of numerals: "times", "about", "month", ..."""
    return re.compile(table("numerals")["words"][name], re.IGNORECASE)


def differences(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """Differences of figures that stand together, and amounts in cents as parts of the currency."""
    digits = [quantity for quantity in found if not quantity.spelled]
    results = set()
    for one, other in _together(digits):
        results |= {abs(mine - theirs) for mine in one.readings for theirs in other.readings}
    for quantity in digits:
        if re.match(rf"\s?(?:{pattern('cents').pattern})", text[quantity.end : quantity.end + 12], re.IGNORECASE):
            results |= {reading / _HUNDRED for reading in quantity.readings}
    return results


def shares(found: Sequence[Quantity]) -> set[Decimal]:
    """What one figure is of another one that stands near, or of another small number, in per cent, rounded."""
    small = {
        reading for quantity in found for reading in quantity.readings if 0 < reading <= _SMALL and not reading % 1
    }
    pairs = [(one, other) for one, other in combinations(sorted(small), 2)]
    for one, other in _together([quantity for quantity in found if not quantity.spelled]):
        pairs += [(mine, theirs) for mine in one.readings for theirs in other.readings]
    results = set()
    for one, other in pairs:
        for part, whole in ((one, other), (other, one)):
            if whole:
                share = part / whole * _HUNDRED
                results |= {
                    share.quantize(Decimal(1)),
                    share.quantize(Decimal("0.1")),
                    abs(share - 100).quantize(Decimal(1)),
                }
    return results


def multiples(found: Sequence[Quantity]) -> set[Decimal]:
    """How many times one figure is another one that stands near, rounded and rounded down."""
    results = set()
    for one, other in _together([quantity for quantity in found if not quantity.spelled]):
        for mine in one.readings:
            for theirs in other.readings:
                low, high = sorted((mine, theirs))
                if low:
                    times = high / low
                    results |= {Decimal(int(times)), times.quantize(Decimal(1)), times.quantize(Decimal("0.1"))}
    return results


def _together(found: Sequence[Quantity]) -> list[tuple[Quantity, Quantity]]:
    return [
        (one, other)
        for position, one in enumerate(found)
        for other in found[position + 1 : position + 1 + _NEAR]
        if not (one.year or other.year)
    ]
