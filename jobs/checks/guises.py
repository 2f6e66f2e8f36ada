"""Numbers that are the same in another guise: rounded ones, and years of another calendar."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

from thothy_ai.jobs.checks.quantities import Quantity


def eras(years: Iterable[Decimal], text: str) -> set[Decimal]:
    """The years that years of the Buddhist, the Japanese and the Taiwanese calendar are in the common one, and back."""
    found = {year + shift for year in years for shift in (-543, 543) if 1900 <= year + shift <= 2700 and year >= 1900}
    for name, first in (("令和", 2018), ("平成", 1988), ("昭和", 1925), ("民國", 1911), ("民国", 1911)):
        found |= {Decimal(first + int(number)) for number in re.findall(rf"{name}(\d{{1,3}})年", text)}
    return found


def rounded(quantity: Quantity, tolerance: str = "0.05", least: int = 100) -> set[Decimal]:
    """What a number becomes when rounded, by up to a share of itself; years may not be, nor whole numbers to less than
    `least`.
    """
    if quantity.year or quantity.spelled:
        return set()
    return {near for value in quantity.readings for near in _rounded(value, Decimal(tolerance), least)}


def _rounded(value: Decimal, tolerance: Decimal, least: int) -> set[Decimal]:
    whole = value == value.to_integral_value()
    digits = len(value.normalize().as_tuple().digits)
    found = set()
    for kept in range(1, min(digits, 12)):
        unit = Decimal(1).scaleb(value.adjusted() - kept + 1)
        for mode in (ROUND_HALF_UP, ROUND_DOWN):
            near = (value / unit).quantize(Decimal(1), mode) * unit
            if abs(near - value) <= value * tolerance and (not whole or near >= least):
                found.add(near.normalize())
    return found
