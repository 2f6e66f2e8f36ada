"""Figures of the source that a text gives to something else: two that are exchanged.

A figure belongs to the words of its clause. Of two figures that count the same, each has words in the source that the
other one has not: names, years, subjects. A text that has such words beside the other figure, on both sides, and none
in the right place has exchanged them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from thothy_ai.jobs.checks.derivations import is_unit_of
from thothy_ai.jobs.checks.derived import kind_of
from thothy_ai.jobs.checks.quantities import prepared, quantities
from thothy_ai.jobs.checks.segments import beginnings, located
from thothy_ai.jobs.checks.units import Unit

_MARKS = r"(?<!\d)[,،、，]|[,،、，](?!\d)|[;:；：؛—–|()（）]"
_CONJUNCTIONS = (
    r"and|but|while|und|aber|während|et|mais|y|pero|mientras|ed|ma|mentre|mas|maar|och|men|ale|и|но|та|ve|و|और|जबकि|"
    r"rather than|instead of|statt|contre|contro|frente a|против|مقابل"
)
# Short words that mean "and" or "but" in one language and something else in others.
_MORE_CONJUNCTIONS = {"it": "e", "pt": "e", "nl": "en", "pl": "i|a", "cs": "i|a", "ru": "а", "uk": "і|а"}
_COUNTED = re.compile(r"^[\s\u00a0-]?[^\W\d_]+")  # the word behind a figure
_MAX_WORD = 32  # its characters
_CAPITALIZED = re.compile(r"(?<=\s)[^\W\d_a-zß-ÿа-я][\w'’-]+")
_NEXT = 5  # figures behind one in a text with which it may be exchanged
_SURE_UNITS = {"share", "currency"}  # families whose words mean nothing else
_SMALL = 12  # a translation may write smaller figures in words, or for something else
_YEAR = 4  # digits
_DASHES = "—–"
_MAX_ALIKE = 5  # claims of one value, from which on it is of no use
_MAX_FIGURES = 2_000  # figures of a text


@dataclass(frozen=True, slots=True)
class FigureClaim:
    """A figure with the beginnings of the words that it belongs to, of the word that it counts, and of its names."""

    values: frozenset[Decimal]
    unit: Unit | None
    text: str
    words: frozenset[str]
    counted: frozenset[str]
    names: frozenset[str]
    sentence: int


def exchanged(text: str, source: str, language: str) -> str | None:
    """Two figures of a text of which each has the words that belong to the other one in the source."""
    known = _by_value(source, language)
    mine: list[tuple[FigureClaim, FigureClaim]] = []
    for claim in _claims(text, language):
        claims = known.get(next(iter(claim.values)), ()) if len(claim.values) == 1 else ()
        fitting = [each for each in claims if is_unit_of(claim.unit, each.unit)]
        if len(fitting) == 1 and len(claims) < _MAX_ALIKE:  # the only one that may count the same
            mine.append((claim, fitting[0]))
    for place, (one, first) in enumerate(mine):
        for other, second in mine[place + 1 : place + 1 + _NEXT]:
            if _are_exchanged((one, other), (first, second)):
                return f"{one.text} and {other.text} are exchanged"
    return None


def exchanged_in_translation(text: str, original: str, language: str, source_language: str) -> str | None:
    """Two figures of a translation that stand in each other's sentence, or one with a unit of another family.

    Something else of these sentences must have stayed where it is; otherwise they are in another order.
    """
    mine, theirs = _unique(text, language), _unique(original, source_language)
    shared = [(mine[value], theirs[value]) for value in mine.keys() & theirs.keys()]
    for one, other in shared:
        if one.unit and other.unit and {one.unit.family, other.unit.family} == _SURE_UNITS:
            return f"{one.text} is of {one.unit.family}, in the original of {other.unit.family}"
    names, their_names = _names(text, language), _names(original, source_language)
    if len(names) != len(their_names):
        return None
    stay = {one.sentence for one, other in shared if one.sentence == other.sentence}
    moved = {(one.sentence, other.sentence): one.text for one, other in shared if one.sentence != other.sentence}
    for (here, there), figure in moved.items():
        if (there, here) in moved and (
            stay & {here, there} or names[here] & their_names[here] - their_names[there] - names[there]
        ):
            return f"{figure} and {moved[there, here]} are exchanged"
    return None


def _names(text: str, language: str) -> list[frozenset[str]]:
    return [beginnings(" ".join(_CAPITALIZED.findall(part)), language) for _, part in located(text, language)]


def _unique(text: str, language: str) -> dict[Decimal, FigureClaim]:
    """The figures that a text has once, by their value."""
    return {
        value: claims[0]
        for value, claims in _by_value(text, language).items()
        if len(claims) == 1 and len(claims[0].values) == 1 and value > _SMALL
    }


def _are_exchanged(mine: tuple[FigureClaim, FigureClaim], theirs: tuple[FigureClaim, FigureClaim]) -> bool:
    if mine[0].values == mine[1].values or not is_unit_of(theirs[0].unit, theirs[1].unit):
        return False
    first, second = theirs[0].words - theirs[1].words, theirs[1].words - theirs[0].words
    named = theirs[0].names & first, theirs[1].names & second  # a verb may be left out beside one of two names
    counted = [frozenset() if other.counted else one.counted for one, other in (theirs, theirs[::-1])]
    for one, other in ((first, second), (_years(first), _years(second)), named):
        straight = (mine[0].words & one - counted[0]) | (mine[1].words & other - counted[1])
        if not straight and mine[0].words & other and mine[1].words & one:
            return True  # each of the two has words of the other one, and none of its own
    return False


def _years(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if word.isdigit() and len(word) == _YEAR)


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _by_value(source: str, language: str) -> dict[Decimal, list[FigureClaim]]:
    found: dict[Decimal, list[FigureClaim]] = defaultdict(list)
    for claim in _claims(source, language):
        for value in claim.values:
            if len(found[value]) < _MAX_ALIKE:
                found[value].append(claim)
    return found


def _claims(text: str, language: str) -> Iterator[FigureClaim]:
    text = prepared(text)
    conjunctions = "|".join(filter(None, (_CONJUNCTIONS, _MORE_CONJUNCTIONS.get(language))))
    clause = re.compile(rf"{_MARKS}|(?<!\w)(?:{conjunctions})(?!\w)")
    figures = [each for each in quantities(text, language)[:_MAX_FIGURES] if not (each.spelled or each.year)]
    parts = located(text, language)
    ends = [start for start, _ in parts[1:]] + [len(text)]
    at = 0
    for sentence, ((start, _), end) in enumerate(zip(parts, ends, strict=True)):
        inside = []
        while at < len(figures) and figures[at].start < end:
            inside.append(figures[at])
            at += 1
        # Where the words of a figure end and those of the next one begin; without a mark between, they are of both.
        borders = [(start, start)]
        for one, other in pairwise(inside):
            marks = list(clause.finditer(text, one.end, other.start))
            if len(marks) > 1 and marks[-1][0] in _DASHES and not text[marks[-1].end() : other.start].strip():
                marks.pop()  # a dash in the place of a verb
            borders.append(marks[-1].span() if marks else (other.start, one.end))
        borders.append((end, end))
        for place, figure in enumerate(inside):
            left, right = borders[place][1], borders[place + 1][0]
            words = f"{text[left : figure.start]} {text[figure.end : right]}"
            counted = beginnings("".join(_COUNTED.findall(figure.after[:_MAX_WORD])), language)
            names = beginnings(" ".join(_CAPITALIZED.findall(words)), language)
            found = beginnings(words, language)
            yield FigureClaim(figure.readings, kind_of(figure), figure.text, found, counted, names & found, sentence)
