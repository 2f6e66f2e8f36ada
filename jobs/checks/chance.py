"""How probable it is that a number agrees with one of many results by coincidence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache

from thothy_ai.jobs.checks.misprints import digits_of

_SPREAD = 1.6  # results up to this many times as large or small as a number can match it by chance
_FINE, _COARSE = 0.025, 0.1  # how far a result may be rounded: to several digits, to one digit
_MIN_VALUE, _MAX_VALUE = 2.0, 1e13
_SMALL = 100.0  # numbers below are not rounded to tens, except after words such as "about"
_ABOUT = 0.07
_THREE_DIGITS = 0.005


@lru_cache(maxsize=4096)
def reach(value: Decimal, about: bool = False) -> float:
    """How far a result may be from the rounded number that states it: half of the last place, more after "about"."""
    number, digits = float(value), digits_of(value)
    place = float(Decimal(1).scaleb(value.adjusted() - len(digits) + 1))
    place = min(place, 1.0) if number < _SMALL else place
    near = min(place / 2, (_FINE if len(digits) > 1 else _COARSE) * number) + 1e-9 * number
    return max(near, _ABOUT * number) if about else near


def may_result(value: Decimal) -> bool:
    """Whether a number can count as a result: very small whole numbers result from almost any calculation."""
    return _MIN_VALUE <= value < _MAX_VALUE or (0 < value < _MAX_VALUE and value != value.to_integral_value())


def chance(value: Decimal, values: Iterable[float], about: bool = False) -> float:
    """The probability that a random number of the same size is as near to one of the values as this number is.

    1 if no value is near. Otherwise it is the number of different values within a factor of 1.6, times the share of
    that range that is as near to each of them.
    """
    number, near = float(value), reach(value, about)
    around = {round(each, 9) for each in values if number / _SPREAD <= each <= number * _SPREAD}
    apart = min((abs(each - number) for each in around), default=number)
    return len(around) * _width(value, apart) if apart <= near else 1.0


def chance_sorted(value: Decimal, lists: Sequence[Sequence[float]], about: bool = False) -> float:
    """`chance` for sorted lists of values, in the time of a search; equal values count as different ones."""
    number, near = float(value), reach(value, about)
    places = ((values, bisect_left(values, number)) for values in lists)
    beside = (each for values, at in places for each in values[max(0, at - 1) : at + 1])
    apart = min((abs(each - number) for each in beside), default=number)
    if apart > near:
        return 1.0
    around = sum(bisect_right(values, number * _SPREAD) - bisect_left(values, number / _SPREAD) for values in lists)
    return around * _width(value, apart)


def _width(value: Decimal, apart: float) -> float:
    """The share of the range around a number within this distance of it, at least what three digits resolve."""
    number = float(value)
    whole = 1.0 if value == value.to_integral_value() else 0.0
    return max(2 * apart, _THREE_DIGITS * number, whole) / (number * (_SPREAD - 1 / _SPREAD))
