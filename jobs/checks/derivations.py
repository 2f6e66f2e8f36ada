"""Whether a number of a text follows from figures of its source, rather than by coincidence.

Among many figures, some two yield nearly any small number. So a result counts only if a number of its size and
precision is unlikely to agree by chance with one of the acceptable results (`chance`). The limit is more generous for
figures of the sentences that a text is about, and for an operation that the words name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import cast

from thothy_ai.jobs.checks import derived, numerals
from thothy_ai.jobs.checks.arithmetic import WORDED, Derivation, Figure, Operation, PlacedDerivation, pair, results
from thothy_ai.jobs.checks.chance import chance, chance_sorted, may_result
from thothy_ai.jobs.checks.derived import PERCENT, kind_of
from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.segments import WordIndex, beginnings, located
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import Unit, names_time, unit_of

_MAX_FIGURES, _MAX_DIGITS = 2_000, 30  # figures of a text; digits of one figure
_MAX_GIVEN, _MAX_ABOUT, _MAX_BESIDE = 8, 5, 24  # figures of a text, sentences that it is about, and their figures
_FULLY_SHARED = 0.8  # the share of words, weighed by rarity, in the sentence that shares most with a text
_MIN_SHARED = 0.3
_MAX_ASKED = 16  # sentences of a source that are all asked if a text shares no word with one
_PARTS_OF_YEAR = (7.0, 12.0, 52.0, 365.0)  # days of a week, months, weeks, days
_PER_TIME = 100.0  # figures from here on may be per day or per month
_BASES = frozenset(map(Decimal, (10, 100, 1000)))  # of "31 in 100"
_BESIDE_BASE = 32  # characters before the base that are searched for a share
_ONE = r"\d|\b(?:one|eine[rsmn]?|uno|una?|une|uma?|een|één|en|ett|jed[ae]n|jedn[ao]|один|одна|одно|bir)"
_OF_BEFORE = re.compile(  # a share before the base, or a word for "every"
    rf"(?:(?:{_ONE})\s(?!per|pro|por)(?:[^\W\d_]{{1,12}}\s)?"
    r"(?:in|of|von|aus|sur|de|di|su|em|op|van|på|av|na|z|ze|dari|trong|из|із|з|από|στους|من|מתוך)\s"
    r"|\b(?:out of|per|every|each|je|pro|cada|chaque|ogni|elke|varje|hver|każd\w+|кажд\w+|кожн\w+|setiap|mỗi)\s"
    r"|(?:لكل|כל|من كل|לכל|מכל)\s|每\s?)$",
    re.IGNORECASE,
)
_OF_BEGIN = re.compile(r"(?:^|[.!?:;\n]\s?)(?:of|von|sur|de|di|su|van|av|z|ze|из|із|з)\s$", re.IGNORECASE)
_SHARE_BEHIND = re.compile(r"[^.!?,\d]{0,30},[^.!?\d]{0,20}\d")
_OF_AFTER = re.compile(
    r"\s?[^\s\d.,;:!?。，、]{0,6}?\s?(?:中|のうち|に|里|当中|가운데|중|में|['’]?[dt][ae]n?\b)"
    r"[^\d.!?。！？]{0,12}[\d一二三四五六七八九十]"
)
_HUNDRED = 100.0
_HUNDRED_OF = Decimal(100)
_WORD_BEHIND = re.compile(r"[\s\u00a0-]?([^\W\d_]+)")
_UNSPACED = re.compile("[\u3005-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_MIN_WORD = 4  # characters of a word that a number may count
_MAX_READ = 2_000  # characters of a sentence
_MAX_WORDED = 3  # fractions in words of one sentence
# How probable a coincidence may be: with the figures that a sentence is about and an operation that it names, ...
_NAMED_NEAR, _NAMED_STEPS, _NEAR, _ALIKE, _NAMED, _ANY = 0.7, 0.3, 0.15, 0.3, 0.05, 0.02
_GIVEN, _GIVEN_ONE = 0.5, 0.3  # with figures of the text itself
_INSIDE, _INSIDE_NAMED = 0.1, 0.2  # with two figures of one sentence that count the same
_TOLD = frozenset({"product", "quotient"})  # operations that need a word for them
_WIDER = 0.5  # this share of the limit, for figures of neighbouring sentences


@dataclass(frozen=True, slots=True)
class Wording:
    """The sentence that has a number, the same with its neighbours, and the figures before it."""

    sentence: str
    passage: str
    given: tuple[Quantity, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A number that may follow from a source: one of its readings, and the clues of the words around it.

    If `strict`, the words must name the operation, since they do not point to any sentences of the source.
    """

    value: Decimal
    unit: Unit | None
    word: str
    times: bool
    about: bool
    named: frozenset[Operation]
    wording: Wording
    strict: bool = False

    def chance(self, outcomes: Iterable[Derivation]) -> float:
        return chance(self.value, (each.value for each in outcomes if self.may_be(each)), self.about)

    def may_be(self, outcome: Derivation) -> bool:
        """Whether the number may count what an outcome counts, as far as the words tell."""
        if self.times:
            return outcome.operation == "quotient" and outcome.unit is None
        return is_unit_of(self.unit, outcome.unit) and (not self.word or outcome.word in ("", self.word))


class Derivations:
    """The results of calculations with a source's figures, and what its sentences are about."""

    def __init__(self, text: str, language: str, figures: Sequence[Quantity]) -> None:
        """`figures` are those of `text`, in which numbers in words and before scale words are written as digits."""
        self._language = language
        usable = sorted(filter(_is_usable, figures[:_MAX_FIGURES]), key=lambda each: each.start)
        parts = located(text, language)
        starts = [start for start, _ in parts]
        found = [_figure(each, max(bisect_right(starts, each.start) - 1, 0)) for each in usable]
        self._figures: dict[int, list[Figure]] = defaultdict(list)
        for figure in (*found, *_worded(parts)):
            self._figures[figure.place].append(figure)
        self._index = WordIndex(beginnings(part, language) for _, part in parts)
        self._all = frozenset(range(len(parts) if len(parts) <= _MAX_ASKED else 0))
        self._operations = [_operations(part) for _, part in parts]
        self._results: dict[int, list[PlacedDerivation]] = defaultdict(list)
        self._words = {each.word for each in found}
        self._sorted: dict[tuple[Unit | None, Operation, str, bool], list[float]] = defaultdict(list)
        ordered = [figure for place in sorted(self._figures) for figure in self._figures[place]]
        self._inside: dict[tuple[Unit | None, Operation], list[float]] = defaultdict(list)
        for result in (*results(ordered), *_in_other_terms(usable, found)):
            self._results[result.first].append(result)
            unit, operation, word = result.outcome[1:]
            self._sorted[unit, operation, word, result.alike].append(result.value)
            if result.alike and result.steps == 1 and result.first == result.last:
                self._inside[unit, operation].append(result.value)
        for values in (*self._sorted.values(), *self._inside.values()):
            values.sort()
        self._percents = any(each.is_percent for each in found)

    def explain(self, quantity: Quantity, wording: Wording, limit: float = 1.0) -> bool:
        """Whether a number may be the result of a calculation, at no more than a part of the usual chance."""
        if quantity.year:
            return False
        if self._percents and quantity.readings & _BASES:  # may be what a share is of, as in "31 in 100", 100人のうち
            before, after = quantity.before[-_BESIDE_BASE:], quantity.after
            begins = _OF_BEGIN.search(before) and _SHARE_BEHIND.match(after)
            if begins or _OF_BEFORE.search(before) or _OF_AFTER.match(after):
                return True
        unit = PERCENT if derived.is_tenths(quantity) else kind_of(quantity)
        word = _counted(quantity)
        asked = _Asked(
            value=Decimal(0),
            unit=unit,
            word=word if word in self._words and unit != PERCENT else "",
            times=derived.is_multiple(quantity),
            about=derived.is_about(quantity),
            named=_operations(wording.sentence),
            wording=wording,
        )
        parts = (1, 100) if derived.is_in_cents(quantity) else (1,)
        values = {each / part for each in quantity.readings for part in parts}
        return any(self._explains(replace(asked, value=each), limit) for each in values if may_result(each))

    def _explains(self, asked: _Asked, limit: float) -> bool:
        about = self._about(asked.wording.sentence)
        wider = self._about(asked.wording.passage) if about else self._all
        if about:
            found = self._explained_by(asked, self._about(asked.wording.sentence, _FULLY_SHARED), limit)
            found = found or self._explained_by(asked, about, limit) or self._explained_by(asked, wider, limit * _WIDER)
        else:
            found = self._explained_by(replace(asked, strict=True), wider, limit * _WIDER)
        return found or any(chance <= most * limit for chance, most in self._chances_anywhere(asked))

    def _explained_by(self, asked: _Asked, about: frozenset[int], limit: float) -> bool:
        return any(found <= most * limit for found, most in self._chances_near(asked, about))

    def _chances_near(self, asked: _Asked, about: frozenset[int]) -> Iterator[tuple[float, float]]:
        """The chances of coincidences with results of the sentences that a text is about, and how high they may be."""
        near = []
        for place in {*about, *(place - 1 for place in about)}:  # also results across a sentence and its neighbour
            for each in self._results.get(place, ()):
                inside = (each.first in about) + (each.last in about)
                if inside == 2 or (inside and each.last - each.first <= 1):
                    near.append(each)
        fitting = [each for each in near if self._fits(each, asked)]
        near = fitting if asked.strict else near
        yield asked.chance(each.outcome for each in fitting if each.steps == 1), _NAMED_NEAR
        yield asked.chance(each.outcome for each in fitting), _NAMED_STEPS
        untold = (each for each in near if each.operation not in _TOLD)
        yield asked.chance(each.outcome for each in (*untold, *fitting)), _NEAR
        given = [_figure(each, 0) for each in asked.wording.given[-_MAX_GIVEN:] if _is_usable(each)]
        both = (each for at, one in enumerate(given) for other in given[at + 1 :] for each in _simple(one, other))
        yield asked.chance(both), _GIVEN
        beside = [each for place in sorted(about) for each in self._figures[place]][:_MAX_BESIDE]
        yield (
            asked.chance(each for one in given for other in beside for each in _simple(one, other._replace(place=0))),
            _GIVEN_ONE,
        )

    def _chances_anywhere(self, asked: _Asked) -> Iterator[tuple[float, float]]:
        lists = {
            key: values
            for key, values in self._sorted.items()
            if is_unit_of(asked.unit, key[0]) and (not asked.word or key[2] in ("", asked.word))
        }
        alike = [values for key, values in lists.items() if key[3] and key[2] == asked.word]
        if asked.word:
            yield chance_sorted(asked.value, alike, asked.about), _ALIKE
        if asked.unit not in {None, PERCENT}:
            measured = [values for key, values in lists.items() if key[3] and key[0] == asked.unit]
            yield chance_sorted(asked.value, measured, asked.about), _ALIKE
        inside = {key: values for key, values in self._inside.items() if is_unit_of(asked.unit, key[0])}
        yield chance_sorted(asked.value, list(inside.values()), asked.about), _INSIDE
        inside_named = [values for key, values in inside.items() if key[1] in asked.named]
        yield chance_sorted(asked.value, inside_named, asked.about), _INSIDE_NAMED
        named = [values for key, values in lists.items() if key[1] in asked.named]
        yield chance_sorted(asked.value, named, asked.about), _NAMED
        yield chance_sorted(asked.value, list(lists.values()), asked.about), _ANY

    def _fits(self, result: PlacedDerivation, asked: _Asked) -> bool:
        """Whether the words of a text, or of the source, name an operation; a share needs none."""
        if asked.strict:
            return result.operation in asked.named
        if asked.unit == PERCENT:
            return result.operation in asked.named or result.operation not in {"change", "difference"}
        named = asked.named | self._operations[result.first] | self._operations[result.last]
        return result.operation in named or result.operation in {"share", "rest"}

    def _about(self, text: str, least: float = _MIN_SHARED) -> frozenset[int]:
        """The sentences of the source that a text is about: those that share its rarest words."""
        weights = self._index.weights(beginnings(text, self._language))
        most = max(weights.values(), default=0.0)
        ranked = sorted(weights, key=lambda place: (-weights[place], place))[:_MAX_ABOUT]
        return frozenset(place for place in ranked if weights[place] >= least * most)


def _simple(one: Figure, other: Figure) -> Iterator[Derivation]:
    return (each for each in pair(one, other) if each.operation != "product")


def _is_usable(quantity: Quantity) -> bool:
    """Whether a number can be calculated with: years cannot, unless they have a unit, such as 1950亩."""
    unit = unit_of(quantity) if quantity.year and quantity.text.isdigit() else None
    measured = unit is not None and unit.family != "time"
    return (measured or not quantity.year) and len(quantity.text) <= _MAX_DIGITS


def _figure(quantity: Quantity, place: int) -> Figure:
    unit = PERCENT if derived.is_tenths(quantity) else kind_of(quantity)
    return Figure(float(max(quantity.readings)), unit, _counted(quantity), place)


def _counted(quantity: Quantity) -> str:
    """The beginning of the word behind a number."""
    match = _WORD_BEHIND.match(quantity.after)
    word = match[1].casefold() if match else ""
    if _UNSPACED.match(word):
        return word[:1]
    return word[:5] if len(word) >= _MIN_WORD else ""


def _worded(parts: Iterable[tuple[int, str]]) -> Iterator[Figure]:
    for place, (_, part) in enumerate(parts):
        fractions = ((share, whole) for share, whole in numerals.fractions(part) if share in {1, whole - 1})
        shares = {100 * share / whole for share, whole in fractions if 0 < share < whole}
        shares |= {_HUNDRED_OF / times for times in numerals.multiples(part)}
        for share in sorted(shares)[:_MAX_WORDED]:
            yield Figure(float(share), PERCENT, WORDED, place)


def _in_other_terms(found: Sequence[Quantity], figures: Sequence[Figure]) -> Iterator[PlacedDerivation]:
    """Multiples in per cent (three times as many are 200 % more), and figures per day or month as figures per year."""
    for quantity, figure in zip(found, figures, strict=True):
        if derived.is_multiple(quantity) and figure.value > 1:
            for value in (figure.value * _HUNDRED, (figure.value - 1) * _HUNDRED, (1 - 1 / figure.value) * _HUNDRED):
                yield PlacedDerivation(Derivation(value, PERCENT, "change"), figure.place, figure.place)
    for quantity, figure in zip(found, figures, strict=True):
        if figure.value >= _PER_TIME and not figure.is_percent and names_time(quantity.before + quantity.after):
            for times in _PARTS_OF_YEAR:
                outcomes = (
                    Derivation(figure.value * times, figure.unit, "product"),
                    Derivation(figure.value / times, figure.unit, "quotient"),
                )
                yield from (PlacedDerivation(each, figure.place, figure.place) for each in outcomes)


def is_unit_of(unit: Unit | None, other: Unit | None) -> bool:
    """Whether a number with a unit can equal a result with another: an unknown unit can be any but per cent."""
    return unit == other or (None in (unit, other) and PERCENT not in (unit, other))


@cache
def _words() -> tuple[tuple[Operation, str], ...]:
    words = cast("dict[Operation, str]", table("operations"))
    return tuple((operation, each.replace("\n", "")) for operation, each in words.items())


def _operations(text: str) -> frozenset[Operation]:
    named = {operation for operation, pattern in _words() if numerals.has_words(pattern, text[:_MAX_READ])}
    return frozenset(named | ({"product"} if "quotient" in named else set()))
