"""What calculations with the figures of a text come to: sums, differences, shares, growth, in up to two steps.

A result knows its operation and the sentences of its figures, since hardly anything but the words around a number tells
what an editor calculated. Figures are combined if they stand near each other, or count the same; kilograms and euros
are not added, a share of a share is none of an amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Literal, NamedTuple

from thothy_ai.jobs.checks.derived import PERCENT
from thothy_ai.jobs.checks.units import Unit

Operation = Literal["sum", "difference", "product", "quotient", "share", "change", "rest"]
_WINDOW = 12  # figures behind one with which it is combined, so that the time is linear
_MAX_ADDED = 5
_NEXT = 4  # figures behind a run, or before it, with which its sum is compared
_MIN_RATIO, _MAX_VALUE = 2.0, 1e13
_MAX_GROWTH = 5  # times, of figures that may count different things
_NEGLIGIBLE = 0.004  # the share of a figure that nobody adds to it, or takes from it
_HUNDRED = 100.0
WORDED = "in words"  # in place of the word that a share in words counts
_MAX_RESULTS = 1_500  # of the figures that begin with those of one sentence


class Figure(NamedTuple):
    """A figure: its value, unit, the beginning of the word that it counts, and the number of its sentence."""

    value: float
    unit: Unit | None
    word: str
    place: int

    @property
    def is_percent(self) -> bool:
        """Whether it is one of per cent."""
        return self.unit == PERCENT


class Derivation(NamedTuple):
    """What a calculation comes to: a value, its unit, the operation, and the beginning of the word that it counts."""

    value: float
    unit: Unit | None
    operation: Operation
    word: str = ""


class PlacedDerivation(NamedTuple):
    """An outcome with the numbers of the sentences that its first and last figure stand in.

    It has two `steps` if it takes two operations, and is `alike` if all its figures count the same.
    """

    outcome: Derivation
    first: int
    last: int
    steps: int = 1
    alike: bool = False

    @property
    def value(self) -> float:
        """The value of the outcome."""
        return self.outcome.value

    @property
    def operation(self) -> Operation:
        """The operation of the outcome."""
        return self.outcome.operation


def results(figures: Sequence[Figure]) -> Iterator[PlacedDerivation]:
    """What the figures of a text, in their order, come to; of each sentence's figures a bounded number."""
    place, group = 0, list[Figure]()
    for at, figure in enumerate(figures):
        if figure.place != place and group:
            yield from islice(_of_sentence(figures, at - len(group), group), _MAX_RESULTS)
            group = []
        place = figure.place
        group.append(figure)
    yield from islice(_of_sentence(figures, len(figures) - len(group), group), _MAX_RESULTS)


def _of_sentence(figures: Sequence[Figure], start: int, group: Sequence[Figure]) -> Iterator[PlacedDerivation]:
    """The results whose first figure stands in one sentence, those of one step first."""
    starts = range(start, start + len(group))
    for at in starts:  # what one share leaves, and "one in 50" for 2 %
        one = figures[at]
        if one.is_percent and 0 < one.value < _HUNDRED:
            left = _HUNDRED - one.value
            for value, unit in ((left, PERCENT), (left, None), (_HUNDRED / one.value, None)):
                yield PlacedDerivation(Derivation(value, unit, "rest"), one.place, one.place)
    for at in starts:
        one = figures[at]
        for other in figures[at + 1 : at + 1 + _WINDOW]:
            yield from _results((one, other), pair(one, other))
    for at in starts:
        for using, outcomes in chain(_runs(figures, at), _rests(figures, at)):
            yield from (each._replace(steps=2) for each in _results(using, outcomes))


def _results(figures: Sequence[Figure], outcomes: Iterable[Derivation]) -> Iterator[PlacedDerivation]:
    first, last = min(each.place for each in figures), max(each.place for each in figures)
    alike = all(count_the_same(figures[0], each) for each in figures[1:])
    for outcome in outcomes:
        if 0 < outcome.value < _MAX_VALUE:
            yield PlacedDerivation(outcome, first, last, 1, alike)


def pair(one: Figure, other: Figure) -> Iterator[Derivation]:
    """What two figures come to."""
    if one.word == other.word == WORDED:
        return  # a third and a half of different things
    if one.is_percent and other.is_percent:
        low, high = sorted((one.value, other.value))
        yield from (Derivation(high - low, unit, "difference") for unit in (PERCENT, None))
        yield Derivation(low + high, PERCENT, "sum")
        if low > 0:
            yield Derivation(high / low, None, "quotient")
            yield from _compared(low, high)
        if low + high < _HUNDRED:
            yield Derivation(_HUNDRED - low - high, PERCENT, "rest")
    elif one.is_percent or other.is_percent:
        share, amount = (one, other) if one.is_percent else (other, one)
        if not _are_near(one, other):
            return
        # The part, what is left, and what there was or will be before and after growth.
        part, value = share.value / _HUNDRED, amount.value
        yield Derivation(part * value, amount.unit, "share")
        yield Derivation((1 + part) * value, amount.unit, "change", amount.word)
        yield Derivation(value / (1 + part), amount.unit, "change", amount.word)
        if 0 < part < 1:
            yield Derivation((1 - part) * value, amount.unit, "rest")
            yield Derivation(value / (1 - part), amount.unit, "change", amount.word)
            yield Derivation(value / part, amount.unit, "share")
    else:
        yield from _of_amounts(one, other)


def _are_near(one: Figure, other: Figure) -> bool:
    return abs(other.place - one.place) <= 1


def count_the_same(one: Figure, other: Figure) -> bool:
    """Whether two figures have one unit, or the same word behind them."""
    return one.unit == other.unit and (one.unit is not None or one.word == other.word != "")


def _may_be_added(one: Figure, other: Figure) -> bool:
    """Whether two figures may count the same: the unit of one of them may be left out."""
    if count_the_same(one, other):
        return True
    if one.place != other.place and not (_are_near(one, other) and "" in (one.word, other.word)):
        return False
    return one.unit == other.unit or None in (one.unit, other.unit)


def _of_amounts(one: Figure, other: Figure) -> Iterator[Derivation]:
    low, high = (one, other) if one.value <= other.value else (other, one)
    near = _are_near(one, other)
    if _may_be_added(one, other):
        if low.value > _NEGLIGIBLE * high.value:
            unit = low.unit or high.unit
            word = low.word or high.word if low.word == high.word or "" in (low.word, high.word) else ""
            yield Derivation(low.value + high.value, unit, "sum", word)
            yield Derivation(high.value - low.value, unit, "difference", word)
        if low.value > 0 and (one.unit == other.unit or "" in (one.word, other.word)):
            yield from islice(_compared(low.value, high.value), 3 if count_the_same(one, other) else 2)
            if not count_the_same(one, other) and high.value < _MAX_GROWTH * low.value:
                yield Derivation((high.value / low.value - 1) * _HUNDRED, PERCENT, "change")
    elif near and one.unit == other.unit and low.value > 0:
        yield from islice(_compared(low.value, high.value), 2)
    if near and low.value > 0:
        yield from _multiplied(low, high)


def _multiplied(low: Figure, high: Figure) -> Iterator[Derivation]:
    if low.unit is None or low.unit != high.unit:
        for each in (low, high):
            yield Derivation(low.value * high.value, each.unit, "product", each.word)
    ratio = high.value / low.value
    if count_the_same(low, high):
        yield Derivation(ratio, None, "quotient")
    elif low.value >= _MIN_RATIO or ratio >= _MIN_RATIO:
        yield Derivation(ratio, high.unit, "quotient", high.word)


def _compared(low: float, high: float) -> Iterator[Derivation]:
    """What one figure is of another one, and how much it is less or more, in per cent."""
    yield Derivation(low / high * _HUNDRED, PERCENT, "share")
    yield Derivation((1 - low / high) * _HUNDRED, PERCENT, "change")
    if high / low < _HUNDRED:
        yield Derivation((high / low - 1) * _HUNDRED, PERCENT, "change")


def _runs(figures: Sequence[Figure], start: int) -> Iterator[tuple[Sequence[Figure], Iterable[Derivation]]]:
    """Sums and averages of successive figures, and what they come to with a figure that stands near."""
    run = [figures[start]]
    for figure in figures[start + 1 : start + _MAX_ADDED]:
        if figure.is_percent or run[0].is_percent or not _may_be_added(run[-1], figure):
            return
        run.append(figure)
        end = start + len(run)
        total = sum(each.value for each in run)
        unit = next((each.unit for each in run if each.unit), None)
        word = next((each.word for each in run if each.word), "")
        if all(count_the_same(run[0], each) or each.place == run[0].place for each in run):
            outcomes = [Derivation(total / len(run), unit, "quotient", word)]
            outcomes += [Derivation(total, unit, "sum", word)] if len(run) > 2 else []
            yield list(run), outcomes
        whole = Figure(total, unit, word, run[-1].place)
        for other in chain(figures[max(0, start - _NEXT) : start], figures[end : end + _NEXT]):
            # A figure of a sentence beside others may be what they are a part of, in other words.
            is_whole = _are_near(whole, other) and whole.unit == other.unit and whole.value < other.value
            if not other.is_percent and (_may_be_added(whole, other) or is_whole):
                yield (*run, other), _compared_with_sum(whole, other)


def _compared_with_sum(total: Figure, other: Figure) -> Iterator[Derivation]:
    low, high = sorted((total.value, other.value))
    word = total.word if total.word == other.word else ""
    yield Derivation(high - low, total.unit or other.unit, "rest" if other.value == high else "difference", word)
    if low > 0:
        yield from _compared(low, high)


def _rests(figures: Sequence[Figure], start: int) -> Iterator[tuple[Sequence[Figure], Iterable[Derivation]]]:
    """What two shares leave of an amount, and what a share and an amount leave of another one."""
    near = [each for each in figures[start : start + 1 + _NEXT] if each.place <= figures[start].place + 1]
    shares = [each for each in near if each.is_percent]
    amounts = [each for each in figures[max(0, start - 2) : start + 1 + _NEXT] if not each.is_percent]
    amounts = [each for each in amounts if _are_near(each, figures[start])]
    for one, other in pairwise(shares):
        left = _HUNDRED - one.value - other.value
        for amount in amounts:
            parts = (left * amount.value / _HUNDRED, (one.value + other.value) * amount.value / _HUNDRED)
            yield (one, other, amount), (Derivation(part, amount.unit, "rest") for part in parts)
    for share in shares[:1]:
        for whole, part in pairwise(amounts):
            left = whole.value * (1 - share.value / _HUNDRED) - part.value
            yield (share, whole, part), (Derivation(left, whole.unit, "rest"),)
