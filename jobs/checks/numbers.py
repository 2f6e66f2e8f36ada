"""Numbers that the source does not have, and numbers that a translation loses or adds."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks import derived, numerals
from thothy_ai.jobs.checks.aliases import eras, rounded, with_scales
from thothy_ai.jobs.checks.derivations import Derivations, Wording
from thothy_ai.jobs.checks.misprints import Misprints
from thothy_ai.jobs.checks.periods import dated_months, months, named_months
from thothy_ai.jobs.checks.quantities import Quantity, bound, prepared, quantities, span_of
from thothy_ai.jobs.checks.segments import located
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.checks.units import CALENDAR, converts, measures, unit_of
from thothy_ai.jobs.text import language as detect

_MIN_SPELLED = 11  # words for smaller numbers are idiom as often as figures: "one of the two"
_ROUND = frozenset(Decimal(10) ** power for power in (2, 3, 6, 9))  # "per cento" and "mille grazie" are no figures
_NOTHING = frozenset({Decimal(0)})
_MAX_LOOSE = 2  # "both", "a pair", the dual: a translation has many ways to say one or two
_BARE = re.compile(r"[:.]\d\d\b|\s?(?:$|[,;!?)]|\.(?!\d)|[–-]\s?\d|(?:to|bis|a|à|до|do)\s\d)")
_OF_MISPRINT = 0.5  # share of the usual limit of chance, for a number that may be a misprint
_SHORTENED = re.compile(r"['’/–-]\s?$")  # before the last two digits of a year
_DAY_OF_MONTH = re.compile(r"[./-]\s?\d|\.?\s?(?:月|월|일|日)")
_MAX_SHOWN = 40  # characters of a number
_DAY, _MAX_MONTHS = 24, 12  # hours of a day, months of a year
_QUARTERS = frozenset(map(Decimal, (0, 15, 30, 45)))  # of an hour, in minutes
_MAX_WORDED = 12  # a translation may write smaller numbers as words, which are known for some languages only


def new_number(text: str, source: str, locale: str) -> Rejection | None:
    """Reject a number that the source does not have, in digits or (from eleven up) in words.

    Decimal marks, scale words, dates, percentages and numbers in words are read in both texts; a number may be rounded
    by up to 5 % if it is not a year.
    """
    written = with_scales(quantities(text, primary(locale), listed=False))
    if not written:
        return None
    known = _numbers_of(source, detect.language(source) or primary(locale), may_round=True)
    parts = _Sentences(prepared(text), locale)
    if dated_months(text, primary(locale)) - known.months and named_months(source):
        return _rejection("a month is not in the source")
    direct = [known.has(quantity) for quantity in written]
    for place, quantity in enumerate(written):
        given = [each for at, each in enumerate(written) if at < place or (at > place and direct[at])]
        if not direct[place] and not known.has(quantity, parts.wording(quantity, given)):
            return _rejection(f"{quantity.text[:_MAX_SHOWN]!r} is not in the source", span_of(quantity, text))
    return None


def numbers_kept(text: str, original: str, source_locale: str, locale: str) -> Rejection | None:
    """Reject a translation that lacks a number of its original, or has one that the original lacks."""
    written = quantities(text, primary(locale), listed=False)
    dated = dated_months(text, primary(locale))
    if written or dated:
        known = _numbers_of(original, primary(source_locale), may_round=False)
        added = next((quantity for quantity in written if not known.has(quantity)), None)
        if added:
            return _rejection(f"{added.text[:_MAX_SHOWN]!r} is not in the original", span_of(added, text))
        if dated - known.months_or_numbers:
            return _rejection("a month is not in the original")
    loose = _MAX_LOOSE if numerals.can_spell(primary(locale)) else _MAX_WORDED
    for quantity in quantities(original, primary(source_locale)):
        if quantity.spelled or quantity.optional:
            continue
        whole = all(reading == reading.to_integral_value() for reading in quantity.readings)
        if whole and max(quantity.readings) <= loose:  # others may be in words that are not recognized
            continue
        if not _numbers_of(text, primary(locale), may_round=False).has(quantity):
            lost = f"{quantity.text[:_MAX_SHOWN]!r} of the original is lost"
            return _rejection(lost, None, span_of(quantity, original))
    return None


class _Sentences:
    def __init__(self, text: str, locale: str) -> None:
        self._parts = located(text, locale)
        self._starts = [start for start, _ in self._parts]

    def _place(self, quantity: Quantity) -> int:
        return max(bisect_right(self._starts, quantity.start) - 1, 0)

    def wording(self, quantity: Quantity, given: Sequence[Quantity]) -> Wording:
        if quantity.spelled:  # its position is in the text before words became digits
            around = f"{quantity.before} {quantity.text} {quantity.after}"
            return Wording(around, around, tuple(given))
        place = self._place(quantity)
        beside = [part for _, part in self._parts[max(0, place - 1) : place + 2]]
        near = tuple(each for each in given if not each.spelled and abs(self._place(each) - place) <= 1)
        return Wording(self._parts[place][1], " ".join(beside), near)


def _rejection(detail: str, span: tuple[int, int] | None = None, source: tuple[int, int] | None = None) -> Rejection:
    return Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, detail, span, source)


def primary(locale: str) -> str:
    """The language of a locale, as its primary subtag."""
    return locale.partition("-")[0].lower()


class _Known:
    """The numbers of a text, in all their readings, and the numbers that follow from them."""

    def __init__(self, text: str, language: str, may_round: bool) -> None:
        text = prepared(text)
        found = with_scales(quantities(text, language))
        exact = {reading for quantity in found for reading in (*quantity.readings, *quantity.parts)}
        self._figures = exact | bound(text) | eras(exact, text) | {Decimal(1)}
        self._months = months(text)
        self._says_free = bool(derived.pattern("free").search(text))
        self._dates = {value for each in found if each.year for value in each.readings if value <= _MAX_MONTHS}
        self._figures |= derived.with_cents(found) | derived.other_years(found, text)
        self._figures |= numerals.ordinals(text) | numerals.scales(text, language)
        self._about: set[Decimal] = set()
        self._about_percent: set[Decimal] = set()
        self._families: dict[Decimal, set[str]] = defaultdict(set)  # of units, by value, "" where it has none
        for quantity in found:
            unit = derived.kind_of(quantity)
            for reading in quantity.readings:
                self._families[reading].add(unit.family if unit else "")
        self._may_round, self._language = may_round, language
        self._written_out, self._written_figures = "", list[Quantity]()
        self._misprints = Misprints(())
        self._written: set[Decimal] = set()  # never taken for misprints: figures of the text, rounded ones, remainders
        self._years, self._measures = derived.spans(found), measures(found)
        self._short_years = {Decimal(int(year) % 100) for each in found if each.year for year in each.readings}
        self._by_word = {
            "month": named_months(text),
            "decade": {value - value % 10 for value in exact if 1500 < value < 2200 or 10 <= value < 100},
            "century": derived.centuries(found) | exact,
            "cents": derived.in_cents(found),
            "quarter": derived.quarters(text),
        }
        self._percent = derived.of_fractions(text)
        if may_round:
            self._figures |= {near for quantity in found for near in rounded(quantity)}
            self._figures |= derived.amounts_in_cents(found)
            self._written = self._figures | derived.rests(found)
            self._written_out = in_digits(_without_scales(text, found), language)
            read = quantities(self._written_out, language)
            self._written_figures = [each for each in read if max(each.readings) not in {0, 1}]
            self._misprints = Misprints(self._written_figures)
            self._about = {near for quantity in found for near in rounded(quantity, "0.1", least=10)}
            self._percent |= numerals.shares(text) | derived.multiples(found) | derived.worded_shares(text, language)
            self._percent |= _may_be_percent(derived.in_percent(found), "0.05")
            self._about_percent = _may_be_percent(derived.in_percent(found), "0.1")
        self._with_shares = self._figures | numerals.shares(text)

    @cached_property
    def _derivations(self) -> Derivations:  # most texts have no number that a calculation must explain
        return Derivations(self._written_out, self._language, self._written_figures)

    @property
    def months(self) -> set[Decimal]:
        """The months that the text names, or may give as numbers of dates."""
        return self._by_word["month"] | self._dates

    @property
    def months_or_numbers(self) -> set[Decimal]:
        """The months that the text names, and its numbers, which may be months."""
        return self.months | self._figures

    def has(self, quantity: Quantity, wording: Wording | None = None) -> bool:
        """Whether a number of a text is known. Numbers below eleven in words always are; a half counts as fifty in
        digits only.
        """
        if self._misprints.has_of_its_unit(quantity):
            written = self._percent if derived.is_percent(quantity) else self._written
            return bool(quantity.readings & written) or converts(quantity, self._measures)
        if self._has_as_it_is(quantity):
            return True
        if not self._may_round or wording is None or _is_clock(quantity):
            return False
        limit = _OF_MISPRINT if self._misprints.has(quantity) else 1.0
        return self._derivations.explain(quantity, wording, limit)

    def _has_as_it_is(self, quantity: Quantity) -> bool:
        beside = self._beside(quantity)
        if quantity.spelled:
            return min(quantity.readings) < _MIN_SPELLED or bool(quantity.readings & (self._figures | beside | _ROUND))
        if self._may_round and derived.is_percent(quantity):
            about = self._about_percent if derived.is_about(quantity) else set()
            return bool(quantity.readings & (self._percent | about))
        if quantity.readings & beside or converts(quantity, self._measures):
            return True
        unit = unit_of(quantity)
        families: list[Collection[str]] = [self._families.get(reading, ()) for reading in quantity.readings]
        measures_other = unit and any(families) and not any(unit.family in each or "" in each for each in families)
        if measures_other and self._may_round and max(quantity.readings) > _MAX_WORDED:
            return False  # the source has it only with units of other families: litres there, euros here
        if self._says_free and quantity.readings == _NOTHING and unit is not None and unit.family == "currency":
            return True
        known = set(self._figures)
        quarter = len(quantity.parts) == 2 and quantity.parts[1] in _QUARTERS
        if _is_clock(quantity) or (quarter and unit is None and not derived.is_percent(quantity)):  # such as 4.30
            known |= self._with_shares | _hours(self._with_shares)
        return bool(quantity.readings & self._with_shares or (quantity.parts and set(quantity.parts) <= known))

    def _beside(self, quantity: Quantity) -> set[Decimal]:
        """The numbers that are known because of the words before or after them."""
        before, after = quantity.before[-24:], quantity.after[:24]
        known = set(self._about) if derived.is_about(quantity) else set[Decimal]()
        if derived.is_percent(quantity):
            known |= self._percent
        if _is_clock(quantity):
            known |= _hours(self._with_shares)
        if quantity.year or _DAY_OF_MONTH.match(after):
            known |= self._months
        if _SHORTENED.search(before):
            known |= self._short_years
        if unit := unit_of(quantity):
            known |= CALENDAR.get(unit.name, frozenset()) | (self._years if unit.name == "year" else set())
        if derived.pattern("century_before").search(before):
            known |= self._by_word["century"]
        for name, numbers in self._by_word.items():
            if derived.pattern(name).match(after.lstrip()):
                known |= numbers
        return known


def _may_be_percent(found: Iterable[Quantity], tolerance: str) -> set[Decimal]:
    """The values of percentages, and their roundings."""
    return {near for each in found for near in (*each.readings, *rounded(each, tolerance))}


def _without_scales(text: str, found: Iterable[Quantity]) -> str:
    """The text with its figures before scale words written out, 1800000 for "1.8 million", and with % for its name."""
    parts, last = [], 0
    for quantity in found:
        percent = derived.pattern("percent").match(quantity.after)
        if (quantity.scaled or percent) and not quantity.spelled and last <= quantity.start:
            written = f"{int(max(quantity.readings))}" if quantity.scaled else text[quantity.start : quantity.end]
            parts += [text[last : quantity.start], written, "%" if percent else ""]
            last = quantity.end + (percent.end() if percent else 0)
    return "".join([*parts, text[last:]])


def _is_clock(quantity: Quantity) -> bool:
    """Whether a number is a time of day: "6:15", "18 Uhr", "um 18.30"."""
    if derived.pattern("clock").match(quantity.after) or ":" in quantity.text:
        return True
    bare = derived.pattern("clock_before").search(quantity.before)
    return bool(bare and _BARE.match(quantity.after))


def _hours(figures: Iterable[Decimal]) -> set[Decimal]:
    """The clock hours that these hours can be in a day of twelve or twenty-four, and the hour before (half past)."""
    hours = {figure for figure in figures if 0 <= figure <= _DAY}
    return hours | {(hour + shift) % _DAY for hour in hours for shift in (12, -1, 11)} | {Decimal(0)}


_numbers_of = lru_cache(maxsize=32)(_Known)  # all fields of an artifact are compared with the same source
