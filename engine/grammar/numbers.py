"""Numbers of a schema: the continuations of a begun number, and its shortest end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, lcm
from typing import Any, NamedTuple

_MAX_MEMORY = 4_096
_MAX_DIGITS = 40  # added to a number
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r"(?:0|-?[1-9][0-9]*)|-?[0-9]+\.[0-9]*[1-9]")  # without -0 and 0.50
_WHOLE = re.compile(r"-?[0-9]*")
_BEGUN = re.compile(r"-?(?:0|[1-9][0-9]*)?(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?")


class Limits(NamedTuple):
    """The limits that a schema sets for a number."""

    least: Fraction | None = None
    above: bool = False  # `least` itself is excluded
    most: Fraction | None = None
    below: bool = False
    step: Fraction | None = None
    whole: bool = False

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Limits:
        """The limits of a schema; `exclusiveMinimum` can be a number, or a boolean that excludes `minimum` itself."""
        above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
        step = _number(node.get("multipleOf"))
        found = cls(_number(node.get("minimum")), above is True, _number(node.get("maximum")), below is True)
        return found.and_(cls(_number(above), True, _number(below), True, None if step is None else abs(step)))

    def and_(self, other: Limits) -> Limits:
        lows = [(each.least, each.above) for each in (self, other) if each.least is not None]
        highs = [(-each.most, each.below) for each in (self, other) if each.most is not None]
        (least, above), (most, below) = max(lows, default=(None, False)), max(highs, default=(None, False))
        steps = [each.step for each in (self, other) if each.step is not None]
        step = _common_multiple(*steps) if len(steps) > 1 else steps[0] if steps else None
        return Limits(least, above, None if most is None else -most, below, step, self.whole or other.whole)

    @property
    def free(self) -> bool:
        return self.least is None and self.most is None and self.step is None

    def mirrored(self) -> Limits:
        least = None if self.most is None else -self.most
        most = None if self.least is None else -self.least
        return self._replace(least=least, above=self.below, most=most, below=self.above)

    def allow(self, value: Fraction) -> bool:
        if self.least is not None and (value < self.least or (self.above and value == self.least)):
            return False
        if self.most is not None and (value > self.most or (self.below and value == self.most)):
            return False
        if self.whole and value.denominator != 1:
            return False
        return self.step is None or (value == 0 if not self.step else (value / self.step).denominator == 1)

    def first(self, low: Fraction, high: Fraction, digits: int) -> Fraction | None:
        """The least allowed number from `low` to `high` with this many digits after the point."""
        grid = Fraction(1, 10**digits)
        if self.step is not None:
            grid = _common_multiple(grid, self.step)
            if not grid:
                return Fraction(0) if low <= 0 <= high and self.allow(Fraction(0)) else None
        if self.least is not None and self.least >= low:
            low = self.least + (grid if self.above and (self.least / grid).denominator == 1 else 0)
        value = ceil(low / grid) * grid
        return value if value <= high and self.allow(value) else None


def _number(value: object) -> Fraction | None:
    return None if value is None or isinstance(value, bool) else Fraction(str(value))


def _common_multiple(one: Fraction, other: Fraction) -> Fraction:
    """The least number that is a multiple of both."""
    scale = lcm(one.denominator, other.denominator)
    return Fraction(lcm(int(one * scale), int(other * scale)), scale)


class Number:
    """Numbers within limits, and their shortest ends."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.fixed = limits.least is not None and limits.least == limits.most
        self.end = lru_cache(_MAX_MEMORY)(self._end)

    def continues(self, text: str) -> bool:
        return _BEGUN.fullmatch(text) is not None and not (self.limits.whole and not _WHOLE.fullmatch(text))

    def accepts(self, text: str) -> bool:
        return _NUMBER.fullmatch(text) is not None and (self.limits.free or self.limits.allow(Fraction(text)))

    def _end(self, text: str) -> str | None:
        """The rest of the shortest number that begins with `text`; None if none is found."""
        if self.accepts(text) and (self.limits.free or _PLAIN.fullmatch(text)):
            return ""
        if "e" in text or "E" in text:
            return "1" if self.accepts(text + "1") else None
        if not text:
            found = [sign + end for sign in ("", "-") if (end := self._digits("", sign)) is not None]
            return min(found, key=len, default=None)
        return self._digits(text.removeprefix("-"), text[: text.startswith("-")])

    def _digits(self, text: str, sign: str) -> str | None:
        """Digits, and perhaps a point, that complete the magnitude `text`."""
        limits = self.limits.mirrored() if sign else self.limits
        if sign and not limits.free and (limits.least is None or limits.least <= 0):
            limits = limits._replace(least=Fraction(0), above=True)
        whole, point, part = text.partition(".")
        for more in range(_MAX_DIGITS):
            if point:
                digits = len(part) + more
                width = Fraction(1, 10 ** len(part))
                found = self._between(Fraction(text + "0"), width, digits, limits) if digits else None
                if found is not None:
                    return found[len(text) :]
                continue
            for digits in range(more, -1, -1):
                after = more - digits - 1  # behind the point
                if (whole == "0" if digits else not whole) or not after or (limits.whole and after > 0):
                    continue
                size = 10**digits
                if whole:
                    low, span = int(whole) * size, size
                else:
                    low = size // 10 if digits > 1 or (sign and after < 0) else 0  # never -0
                    span = size - low
                found = self._between(Fraction(low), Fraction(span), max(0, after), limits)
                if found is not None:
                    return found[len(text) :]
        return None

    def _between(self, low: Fraction, span: Fraction, digits: int, limits: Limits) -> str | None:
        """The text of the first number from `low` to below `low + span`."""
        high, unit = low + span - Fraction(1, 10**digits), Fraction(1, 10**digits)
        value = limits.first(low, high, digits)
        if value is not None and digits and not limits.free and (value / unit) % 10 == 0:  # 0.50 is not always allowed
            value = limits.first(value + unit, high, digits)
        if value is None:
            return None
        scaled = str(floor(value * 10**digits)).rjust(digits + 1, "0")
        return scaled if not digits else f"{scaled[:-digits]}.{scaled[-digits:]}"
