"""Results of calculations with the figures of a text: sums, differences, shares, growth, in up to two steps.

A result carries its operation and the sentences of its figures: the words around a number are the best evidence of what
an editor calculated. Figures are combined if they stand near each other or count the same thing. Kilograms and euros
are not added, and a share of a share is not a share of an amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Literal, NamedTuple

from thothy_ai.jobs.checks.derived import PERCENT
from thothy_ai.jobs.checks.units import Unit

Operation = Literal["sum", "difference", "product", "quotient", "share", "change", "rest"]
_WINDOW = 12  # later figures that each figure is combined with; keeps the time linear
_MAX_ADDED = 5
_NEXT = 4  # figures before and after a run that its sum is compared with
_MIN_RATIO, _MAX_VALUE = 2.0, 1e13
_MAX_GROWTH = 5  # the largest ratio of figures that may count different things
_NEGLIGIBLE = 0.004  # a share of a figure too small to be added or subtracted
_HUNDRED = 100.0
WORDED = "in words"  # in place of the word that a share in words counts
_MAX_RESULTS = 1_500  # per sentence, counting results whose first figure is there


class Figure(NamedTuple):
    """A figure: its value, unit, the beginning of the word that it counts, and the number of its sentence."""

    value: float
    unit: Unit | None
    word: str
    place: int

    @property
    def is_percent(self) -> bool:
        """Whether it is a percentage."""
        return self.unit == PERCENT


class Derivation(NamedTuple):
    """The outcome of a calculation: a value, its unit, the operation, and the beginning of the word that it counts."""

    value: float
    unit: Unit | None
    operation: Operation
    word: str = ""


class PlacedDerivation(NamedTuple):
    """An outcome with the numbers of the sentences that its first and last figure stand in.

    `steps` is the number of operations, one or two. `alike` says that all its figures count the same thing.
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
    """Results of calculations with the figures of a text, given in order; at most `_MAX_RESULTS` per sentence."""
    place, group = 0, list[Figure]()
    for at, figure in enumerate(figures):
        if figure.place != place and group:
            yield from islice(_of_sentence(figures, at - len(group), group), _MAX_RESULTS)
            group = []
        place = figure.place
        group.append(figure)
    yield from islice(_of_sentence(figures, len(figures) - len(group), group), _MAX_RESULTS)


def _of_sentence(figures: Sequence[Figure], start: int, group: Sequence[Figure]) -> Iterator[PlacedDerivation]:
    """The results whose first figure is in one sentence, one-step results first."""
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
    """The results of calculating with two figures."""
    if one.word == other.word == WORDED:
        return  # shares of different things, such as a third and a half
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
    """Whether two figures have the same unit, or the same word after them."""
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
    """One figure as a percentage of another, and the difference in per cent."""
    yield Derivation(low / high * _HUNDRED, PERCENT, "share")
    yield Derivation((1 - low / high) * _HUNDRED, PERCENT, "change")
    if high / low < _HUNDRED:
        yield Derivation((high / low - 1) * _HUNDRED, PERCENT, "change")


def _runs(figures: Sequence[Figure], start: int) -> Iterator[tuple[Sequence[Figure], Iterable[Derivation]]]:
    """Sums and averages of successive figures, and the results of combining them with a nearby figure."""
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
            # A figure can be the whole, in other words, of which figures in a neighbouring sentence are parts.
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
    """What remains of an amount after two shares, and what remains of it after a share and another amount."""
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
