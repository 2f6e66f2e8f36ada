"""Figures of the source that a text gives to something else: two that are exchanged.

A figure belongs to the words of its clause. Of two figures that count the same, each has words in the source that the
other one has not: names, years, subjects. A text that has such words beside the other figure, on both sides, and none
in the right place has exchanged them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import chain, pairwise

from thothy_ai.jobs.checks.derived import kind_of
from thothy_ai.jobs.checks.quantities import Quantity, prepared, quantities
from thothy_ai.jobs.checks.segments import beginnings, located
from thothy_ai.jobs.checks.units import Unit

_CLAUSE = re.compile(
    r"(?<!\d)[,،、，]|[,،、，](?!\d)|[;:；：؛—–|()（）]"
    r"|(?<!\w)(?:and|but|while|und|aber|während|et|mais|y|pero|mientras|e|ed|ma|mentre|mas|en|maar|och|men|i|ale|a|и|а|но|та|і|ve|"
    r"و|और|जबकि|rather than|instead of|statt|contre|contro|frente a|против|مقابل)(?!\w)"
)
_NEXT = 5  # figures behind one in a text with which it may be exchanged
_YEAR = 4  # digits
_MOST = 2_000  # figures of a text


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure with the beginnings of the words that it belongs to."""

    values: frozenset[Decimal]
    unit: Unit | None
    text: str
    words: frozenset[str]


def exchanged(text: str, source: str, language: str) -> str | None:
    """Two figures of a text of which each has the words that belong to the other one in the source."""
    known = _by_value(source, language)
    mine = [claim for claim in _claims(text, language) if len(claim.values) == 1]
    for place, one in enumerate(mine):
        for other in mine[place + 1 : place + 1 + _NEXT]:
            theirs = known.get(next(iter(one.values))), known.get(next(iter(other.values)))
            if theirs[0] and theirs[1] and _are_exchanged((one, other), (theirs[0], theirs[1])):
                return f"{one.text} and {other.text} are exchanged"
    return None


def _are_exchanged(mine: tuple[Claim, Claim], theirs: tuple[Claim, Claim]) -> bool:
    if mine[0].values == mine[1].values or theirs[0].unit != theirs[1].unit:
        return False
    first, second = theirs[0].words - theirs[1].words, theirs[1].words - theirs[0].words
    return _cross(mine, first, second) or _cross(mine, _years(first), _years(second))


def _cross(mine: tuple[Claim, Claim], first: frozenset[str], second: frozenset[str]) -> bool:
    """Whether each of two figures has words of the other one, and none of its own."""
    straight = (mine[0].words & first) | (mine[1].words & second)
    return not straight and bool(mine[0].words & second) and bool(mine[1].words & first)


def _years(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if word.isdigit() and len(word) == _YEAR)


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _by_value(source: str, language: str) -> dict[Decimal, Claim | None]:
    """The claims of a source by their value; None for a value that it has in several places."""
    found: dict[Decimal, Claim | None] = {}
    for claim in _claims(source, language):
        for value in claim.values:
            found[value] = None if value in found else claim
    return found


def _claims(text: str, language: str) -> Iterator[Claim]:
    """The figures of a text, sentence by sentence, with their words."""
    text = prepared(text)
    figures = [each for each in quantities(text, language)[:_MOST] if not (each.spelled or each.year)]
    parts = located(text, language)
    ends = [start for start, _ in parts[1:]] + [len(text)]
    at = 0
    for (start, _), end in zip(parts, ends, strict=True):
        inside = []
        while at < len(figures) and figures[at].start < end:
            inside.append(figures[at])
            at += 1
        yield from _of_sentence(text, start, end, inside, language)


def _of_sentence(text: str, start: int, end: int, figures: Sequence[Quantity], language: str) -> Iterator[Claim]:
    borders = [(start, start), *chain.from_iterable(_borders(text, figures)), (end, end)]
    for place, figure in enumerate(figures):
        left, right = borders[place][1], borders[place + 1][0]
        words = f"{text[left : figure.start]} {text[figure.end : right]}"
        yield Claim(figure.readings, kind_of(figure), figure.text, beginnings(words, language))


def _borders(text: str, figures: Iterable[Quantity]) -> Iterator[Iterable[tuple[int, int]]]:
    """Where the words of a figure end and those of the next one begin; words between without a border are of both."""
    for one, other in pairwise(figures):
        marks = list(_CLAUSE.finditer(text, one.end, other.start))
        yield [(marks[-1].start(), marks[-1].end())] if marks else [(other.start, one.end)]
