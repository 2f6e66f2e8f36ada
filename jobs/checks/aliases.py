"""Other forms of the same number: rounded, with a shared scale word, or as a year of another calendar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from itertools import pairwise, product

from thothy_ai.jobs.checks.quantities import Quantity

_REACH = 80  # characters between a number with a scale word and one that has its scale
_SENTENCE_END = re.compile(r"[.!?。！？।](?!\d)|\n")
_COUNTS_NOTHING = re.compile(r"\s?(?:$|[.,;:!?)،؛。、，।—–](?!\d))")
_DIGITS = re.compile(r"\d+")


def eras(years: Iterable[Decimal], text: str) -> set[Decimal]:
    """Other forms of years: Buddhist years for common ones and back, common ones for Japanese and Taiwanese years."""
    found = {year + shift for year in years for shift in (-543, 543) if 1900 <= year + shift <= 2700 and year >= 1900}
    for name, first in (("令和", 2018), ("平成", 1988), ("昭和", 1925), ("民國", 1911), ("民国", 1911)):
        found |= {Decimal(first + int(number)) for number in re.findall(rf"{name}(\d{{1,3}})年", text)}
    return found


def with_scales(found: Sequence[Quantity]) -> list[Quantity]:
    """The numbers of a text in order. A number that counts nothing can also take the scale word of the number before
    it.

    In "the state pays 1.4 million, the city 0.9", the second is read as 0.9 and as 900,000.
    """
    given = list(found)
    for place, (one, other) in enumerate(pairwise(found)):
        factor = Decimal(0)  # of the preceding number's scale word
        digits = _DIGITS.match(given[place].text)
        if given[place].scaled and not given[place].spelled and digits:
            value, powers = max(given[place].readings), (Decimal(10) ** power for power in (12, 9, 8, 6, 4, 3))
            fitting = (each for each in powers if value >= each and len(str(int(value / each))) == len(digits[0]))
            factor = next(fitting, factor)
        near = 0 <= other.start - one.end <= _REACH and not _SENTENCE_END.search(one.after[: other.start - one.end])
        counts_nothing = not (other.scaled or other.spelled or other.year) and _COUNTS_NOTHING.match(other.after)
        if factor and near and counts_nothing:
            scaled = other.readings | {each * factor for each in other.readings}
            given[place + 1] = replace(other, readings=frozenset(scaled), scaled=True)
    return given


def rounded(quantity: Quantity, tolerance: str = "0.05", least: int = 100) -> set[Decimal]:
    """The roundings of a number, by up to the share `tolerance` of it. Years are not rounded, nor whole numbers to less
    than `least`.
    """
    if quantity.year or quantity.spelled:
        return set()
    found = set()
    for value in quantity.readings:
        whole = value == value.to_integral_value()
        digits = len(value.normalize().as_tuple().digits)
        for kept, mode in product(range(1, min(digits, 12)), (ROUND_HALF_UP, ROUND_DOWN)):
            unit = Decimal(1).scaleb(value.adjusted() - kept + 1)
            near = (value / unit).quantize(Decimal(1), mode) * unit
            if abs(near - value) <= value * Decimal(tolerance) and (not whole or near >= least):
                found.add(near.normalize())
    return found
