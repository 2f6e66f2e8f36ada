"""Figures that one calculation gets from two of a source: sums, differences, products, quotients, shares, growth.

Nothing but its result tells what an editor calculated. Figures are combined if they stand near each other, or count the
same. Some two of many figures come to any number below a hundred, so such a result must be exact, and its figures side
by side, or of one unit or word with it. A figure of the source that lost its decimal mark, or in which two digits are
transposed, is a misprint, whatever comes to the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache

from thothy_ai.jobs.checks import derived
from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.units import names_time, unit_of

_WINDOW = 12  # figures behind one with which it is combined, so that the time is linear
_REACH = 160  # characters between two figures that are combined whatever they count
_SHARE_REACH = 100  # the same for shares, of which there are few in all
_LEAST, _MOST = 2.0, 1e13
_SMALL = 100.0  # results below must be exact
_MOST_FIGURES, _MOST_DIGITS = 2_000, 30  # of a text; those of one figure
_PARTS_OF_YEAR = (7.0, 12.0, 52.0, 365.0)  # days of a week, months, weeks, days
_PER_TIME = 100.0  # from which on a figure may be one per day or month
_FINE, _COARSE = 0.025, 0.08  # how far a result may be rounded: to several digits, to one
_BASES = frozenset(map(Decimal, (10, 100, 1000)))  # of "31 in 100"
_HUNDRED = 100.0
_TENFOLD = 10
_MISPLACED = 3  # places by which a decimal mark is misplaced

_WORD_BEHIND = re.compile(r"[\s\u00a0-]?([^\W\d_]+)")
_SENTENCE_END = re.compile(r"[.!?。！？](?!\d)|\n")
_UNSPACED = re.compile("[\u3005-\u30ff\u3400-\u9fff\uac00-\ud7a3]")

Unit = tuple[str, str] | None
_PERCENT: Unit = ("share", "percent")


class Results:
    """What any two figures of a text that stand near come to, by the unit of the result."""

    def __init__(self, figures: Sequence[Quantity]) -> None:
        usable = sorted(filter(_is_usable, figures[:_MOST_FIGURES]), key=lambda each: each.start)
        self._percents = [float(value) for each in usable if derived.is_percent(each) for value in each.readings]
        self._misprintable = _by_digits(usable)
        amounts, shares = {*_alone(usable), *_rests(usable)}, set(_shares_alone(usable))
        for one, other in _near(usable):
            amounts.update(_counted_amounts(one, other))
            shares.update(_shares(one, other))
        self._amounts: dict[tuple[Unit, str], list[float]] = {}
        for unit, word, value in amounts:
            self._amounts.setdefault((unit, word), []).append(value)
        for values in self._amounts.values():
            values.sort()
        self._shares = sorted(shares)
        self._per_time = sorted(_per_time(usable))

    def has(self, quantity: Quantity) -> bool:
        """Whether a number may be the result of a calculation."""
        if quantity.year:
            return False
        if derived.is_percent(quantity) or is_tenths(quantity):
            return any(_is_near(value, self._shares) for value in quantity.readings)
        if self._percents and quantity.readings & _BASES:
            return True
        unit, word = kind_of(quantity), _counted(quantity)
        known = [self._amounts.get(key, []) for key in {(unit, ""), (None, ""), (unit, word)}]
        if names_time(quantity.before + quantity.after):
            known.append(self._per_time)
        return any(
            (_is_exact if value < _SMALL else _is_near)(value, values)
            for value in quantity.readings
            for values in known
        )

    def is_misprint(self, quantity: Quantity) -> bool:
        """Whether a number is one of the source's with another magnitude or with two digits transposed."""
        if quantity.spelled or quantity.year or len(quantity.readings) > 1:
            return False
        (value,) = quantity.readings
        digits = _digits(value)
        unit = kind_of(quantity)
        for other, its_unit in self._misprintable.get("".join(sorted(digits)), ()):
            apart = abs(other.adjusted() - value.adjusted())
            if other == value or apart > _MISPLACED or (unit and its_unit and unit != its_unit):
                continue
            if _digits(other) == digits and (len(digits) > 1 or (unit and unit == its_unit)):
                return True
            if len(digits) > 1 and other.adjusted() == value.adjusted() and _are_transposed(_digits(other), digits):
                return True
        return False


def is_tenths(quantity: Quantity) -> bool:
    """Whether a number is one of tenths, as in 8割 and 3成, which is read as 8 and as 80."""
    return len(quantity.readings) == 2 and max(quantity.readings) == _TENFOLD * min(quantity.readings) <= 100


def kind_of(quantity: Quantity) -> Unit:
    """The unit of a number, "percent" if it is one of per cent."""
    if derived.is_percent(quantity):
        return _PERCENT
    return unit_of(quantity)


def _digits(value: Decimal) -> str:
    return "".join(map(str, value.normalize().as_tuple().digits))


def _by_digits(figures: Iterable[Quantity]) -> dict[str, list[tuple[Decimal, Unit]]]:
    found: dict[str, list[tuple[Decimal, Unit]]] = {}
    for each in figures:
        for value in each.readings if len(each.readings) == 1 else ():
            entries = found.setdefault("".join(sorted(_digits(value))), [])
            if len(entries) < _WINDOW:
                entries.append((value, kind_of(each)))
    return found


def _are_transposed(one: str, other: str) -> bool:
    """Whether two numbers of as many digits differ by two neighbouring ones that changed places."""
    differing = [at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs]
    return len(one) == len(other) and len(differing) == 2 and differing[1] - differing[0] == 1


def _near(figures: Sequence[Quantity]) -> Iterator[tuple[Quantity, Quantity]]:
    for place, one in enumerate(figures):
        for other in figures[place + 1 : place + 1 + _WINDOW]:
            yield one, other


def _is_usable(quantity: Quantity) -> bool:
    return not quantity.year and len(quantity.text) <= _MOST_DIGITS


def _values(quantity: Quantity) -> list[float]:
    return [float(value) for value in quantity.readings if 0 < value < _MOST]


def _rests(figures: Sequence[Quantity]) -> Iterator[tuple[Unit, str, float]]:
    """What two of three successive figures leave of the largest."""
    for first, second, third in zip(figures, figures[1:], figures[2:], strict=False):
        if third.start - first.end <= 2 * _REACH:
            rest, *others = sorted((max(_values(each), default=0.0) for each in (first, second, third)), reverse=True)
            left = rest - sum(others)
            yield None, "" if left >= _SMALL else _counted(first) or "-", left


def _alone(figures: Iterable[Quantity]) -> Iterator[tuple[Unit, str, float]]:
    """What one share comes to: "one in 50" for 2 %, and 98 of 100 for the rest."""
    for each in figures:
        for value in _values(each) if derived.is_percent(each) else ():
            if value < _HUNDRED:
                yield None, "", _HUNDRED / value
                yield None, "", _HUNDRED - value


def _per_time(figures: Iterable[Quantity]) -> Iterator[float]:
    """What figures per day, week or month come to in a year, and the reverse."""
    for each in figures:
        for value in _values(each):
            if value >= _PER_TIME and not derived.is_percent(each):
                yield from (value * times for times in _PARTS_OF_YEAR)
                yield from (value / times for times in _PARTS_OF_YEAR)


def _shares_alone(figures: Iterable[Quantity]) -> Iterator[float]:
    for each in figures:
        percent = derived.is_percent(each) or is_tenths(each)
        times = bool(derived.pattern("times").match(each.after.lstrip()))
        for value in _values(each):
            if percent:
                yield from (value, _HUNDRED - value)
            elif times:
                yield from (value * _HUNDRED, (value - 1) * _HUNDRED, (1 - 1 / value) * _HUNDRED)


def _counted_amounts(one: Quantity, other: Quantity) -> Iterator[tuple[Unit, str, float]]:
    """What two figures come to, and the word behind it if it is small and they do not stand side by side."""
    beside, unit = _are_side_by_side(one, other), kind_of(one)
    alike = _count_the_same(one, other)
    for its_unit, value in _amounts(one, other):
        if value >= _SMALL or beside:
            yield its_unit, "", value
        elif alike and unit == its_unit:
            yield its_unit, "" if unit else _counted(one), value


def _amounts(one: Quantity, other: Quantity) -> Iterator[tuple[Unit, float]]:
    near = other.start - one.end <= _REACH
    units = kind_of(one), kind_of(other)
    if not near and not _count_the_same(one, other):
        return
    for mine in _values(one):
        for theirs in _values(other):
            if _PERCENT not in units:
                yield from _added(mine, theirs, units)
                yield from _multiplied(mine, theirs, units) if near else ()
            elif near and units[0] != units[1]:
                yield from (
                    _of_share(mine, theirs, units[1]) if units[0] == _PERCENT else _of_share(theirs, mine, units[0])
                )


def _are_side_by_side(one: Quantity, other: Quantity) -> bool:
    """Whether nothing but a few words of one sentence is between two figures."""
    apart = other.start - one.end
    between = (one.after + other.before)[-apart:] if apart > len(one.after) else one.after[: max(apart, 0)]
    return 0 <= apart <= len(one.after + other.before) and not _SENTENCE_END.search(between)


def _count_the_same(one: Quantity, other: Quantity) -> bool:
    """Whether two figures have one unit, or the same word behind them."""
    unit = kind_of(one)
    return unit == kind_of(other) and (unit is not None or _counted(one) == _counted(other) != "")


def _counted(quantity: Quantity) -> str:
    """The beginning of the word behind a number."""
    word = _WORD_BEHIND.match(quantity.after)
    return word[1][: 1 if _UNSPACED.match(word[1]) else 5].casefold() if word else ""


def _added(mine: float, theirs: float, units: tuple[Unit, Unit]) -> Iterator[tuple[Unit, float]]:
    if units[0] == units[1] or None in units:
        unit = units[0] or units[1]
        yield from ((unit, mine + theirs), (unit, abs(mine - theirs)))


def _multiplied(mine: float, theirs: float, units: tuple[Unit, Unit]) -> Iterator[tuple[Unit, float]]:
    low, high = sorted((mine, theirs))
    results = {units[0] or units[1], units[1] or units[0]} if None in units else {*units, None}
    if low > 0:
        yield from ((unit, low * high) for unit in results)
    if low >= _LEAST:
        yield from ((unit, high / low) for unit in {*results, None})
    elif low > 0:
        yield None, high / low


def _of_share(percent: float, amount: float, unit: Unit) -> Iterator[tuple[Unit, float]]:
    """The part, what is left, and what there was or will be before and after growth."""
    share = percent / _HUNDRED
    yield from ((unit, share * amount), (unit, (1 + share) * amount), (unit, amount / (1 + share)))
    if share < 1:
        yield from ((unit, (1 - share) * amount), (unit, amount / (1 - share)), (unit, amount / share))


def _shares(one: Quantity, other: Quantity) -> Iterator[float]:
    units = kind_of(one), kind_of(other)
    reach = _REACH if units[0] and units[0] == units[1] else _SHARE_REACH
    if units[0] != units[1] or other.start - one.end > reach:
        return
    if not (_count_the_same(one, other) or _are_side_by_side(one, other)):
        return
    for mine in _values(one):
        for theirs in _values(other):
            low, high = sorted((mine, theirs))
            share = low / high * _HUNDRED
            yield from (share, _HUNDRED - share)
            if high / low < _HUNDRED:
                yield (high / low - 1) * _HUNDRED
            if units[0] == units[1] == _PERCENT:
                yield high - low


@lru_cache(maxsize=4096)
def _step(value: Decimal) -> tuple[float, float]:
    """The last place of a number, and how much it may be rounded by."""
    digits = _digits(value)
    place = float(Decimal(1).scaleb(value.adjusted() - len(digits) + 1))
    return place, _FINE if len(digits) > 1 else _COARSE


def _is_near(value: Decimal, results: Sequence[float]) -> bool:
    """Whether a number is one of the sorted results, rounded up or down to its own number of digits."""
    if not _LEAST <= value < _MOST and value == value.to_integral_value():
        return False
    number = float(value)
    place, share = _step(value)
    reach = min(place / 2, share * number) + 1e-9 * number
    at = bisect_left(results, number - reach)
    return at < len(results) and results[at] <= number + reach


def _is_exact(value: Decimal, results: Sequence[float]) -> bool:
    """Whether a number is one of the sorted results, apart from how floats are rounded."""
    at = bisect_left(results, float(value) - 1e-9)
    return at < len(results) and results[at] <= float(value) + 1e-9
