"""Numbers: those that the source does not have, and those that a translation loses or adds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.checks import derived, numerals
from thothy_ai.jobs.checks.arithmetic import Results
from thothy_ai.jobs.checks.guises import eras, rounded
from thothy_ai.jobs.checks.months import months, named_months
from thothy_ai.jobs.checks.quantities import Quantity, bound, prepared, quantities
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.checks.units import CALENDAR, converts, measures, unit_of
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_MIN_SPELLED = 11  # below, words for numbers are idiom as often as figures: "one of the two"
_ROUND = frozenset(Decimal(10) ** power for power in (2, 3, 6, 9))  # "per cento" and "mille grazie" are no figures
_MIN_ADDED = 5  # numbers in words from which on their sums and differences are taken for figures
_MAX_LOOSE = 2  # "both", "a pair", the dual: a translation has many ways to say one or two
_BARE = re.compile(r"[:.]\d\d\b|\s?(?:$|[,;!?)]|\.(?!\d)|[–-]\s?\d|(?:to|bis|a|à|до|do)\s\d)")
_DAY = 24  # hours
_QUARTERS = frozenset(map(Decimal, (0, 15, 30, 45)))  # of an hour, in minutes
_MAX_WORDED = 12  # a translation may write these as words, which are known of some languages only


def new_number(text: str, source: str, locale: str) -> Rejection | None:
    """Reject a number that the source does not have, in digits or (from eleven up) in words.

    Decimal marks, scale words, dates, percentages and numbers in words are read in both texts; a number may be rounded
    by up to 5 % if it is not a year.
    """
    written = quantities(text, primary(locale), listed=False)
    if not written:
        return None
    known = _numbers_of(source, detect.language(source) or primary(locale), may_round=True)
    lacking = next((quantity for quantity in written if not known.has(quantity)), None)
    return _rejection(f"{lacking.text!r} is not in the source") if lacking else None


def numbers_kept(text: str, original: str, source_locale: str, locale: str) -> Rejection | None:
    """Reject a translation that lacks a number of its original, or has one that the original lacks."""
    known = _numbers_of(original, primary(source_locale), may_round=False)
    written = quantities(text, primary(locale), listed=False)
    if added := next((quantity for quantity in written if not known.has(quantity)), None):
        return _rejection(f"{added.text!r} is not in the original")
    kept, can_spell = _numbers_of(text, primary(locale), may_round=False), numerals.can_spell(primary(locale))
    for quantity in quantities(original, primary(source_locale)):
        if not (quantity.spelled or kept.has(quantity) or _may_go(quantity, can_spell)):
            return _rejection(f"{quantity.text!r} of the original is lost")
    return None


def _rejection(detail: str) -> Rejection:
    return Rejection(RejectionReason.NUMBER_NOT_IN_SOURCE, detail)


def primary(locale: str) -> str:
    """The language of a locale, as its primary subtag."""
    return locale.partition("-")[0].lower()


def _may_go(quantity: Quantity, can_spell: bool) -> bool:
    """Whether a translation may word a number in a way that cannot be recognized."""
    if quantity.optional or any(reading != reading.to_integral_value() for reading in quantity.readings):
        return quantity.optional
    return max(quantity.readings) <= (_MAX_LOOSE if can_spell else _MAX_WORDED)


class _Known:
    """The numbers of a text, in all their readings, and what follows from them."""

    def __init__(self, text: str, language: str, may_round: bool) -> None:
        text = prepared(text)
        found = quantities(text, language)
        exact = {reading for quantity in found for reading in (*quantity.readings, *quantity.parts)}
        short = {Decimal(int(year) % 100) for quantity in found if quantity.year for year in quantity.readings}
        self._figures = exact | bound(text) | short | eras(exact, text) | months(text) | {Decimal(1)}
        self._figures |= derived.with_cents(found) | derived.other_years(found, text)
        self._figures |= numerals.ordinals(text) | numerals.scales(text, language)
        self._about: set[Decimal] = set()
        self._results: Results | None = None
        self._years, self._measures = derived.spans(found), measures(found)
        shares = derived.shares(found, text, language)
        self._by_word = {
            "month": named_months(text),
            "decade": {value - value % 10 for value in exact if 1500 < value < 2200 or 10 <= value < 100},
            "century": derived.centuries(found) | exact,
            "cents": derived.in_cents(found),
            "quarter": derived.quarters(text),
        }
        if may_round:
            everything = in_digits(text, language)
            all_found = [each for each in quantities(everything, language) if max(each.readings) >= _MIN_ADDED]
            self._figures |= {near for quantity in found for near in rounded(quantity)} | derived.sums(found, text)
            self._figures |= derived.sums(all_found, everything)
            written_out = in_digits(_without_scales(text, found), language)
            self._results = Results([each for each in quantities(written_out, language) if max(each.readings) > 1])
            shares |= derived.shares(all_found, everything, language)
            self._about = {near for quantity in found for near in rounded(quantity, "0.1", least=10)}
            self._by_word["times"] = derived.multiples(found, text)
        else:
            shares = {share for share in shares if share in derived.of_fractions(text)}
        self._percent = shares
        self._with_shares = self._figures | numerals.shares(text)

    def has(self, quantity: Quantity) -> bool:
        """Whether a number of a text is known. One below eleven in words always is; half is fifty in digits only."""
        if quantity.spelled:
            known = self._figures | self._beside(quantity) | _ROUND
            idiom = min(quantity.readings) < _MIN_SPELLED
            return idiom or bool(quantity.readings & known) or self._comes_to(quantity)
        if quantity.readings & (self._with_shares | self._beside(quantity)) or converts(quantity, self._measures):
            return True
        times = self._with_shares | _hours(self._with_shares)
        known = self._figures | (times if _may_be_clock(quantity) else set())
        return bool(quantity.parts and set(quantity.parts) <= known) or self._comes_to(quantity)

    def _comes_to(self, quantity: Quantity) -> bool:
        """Whether a calculation with figures of the text comes to a number that is no misprint of one of them."""
        if self._results is None or _is_clock(quantity) or self._results.is_misprint(quantity):
            return False
        return self._results.has(quantity)

    def _beside(self, quantity: Quantity) -> set[Decimal]:
        """The numbers that are known because of what stands before or after one."""
        before, after = quantity.before[-24:], quantity.after[:24]
        known: set[Decimal] = set()
        if derived.pattern("about").search(before) or derived.pattern("about_after").search(after):
            known |= self._about
        if derived.is_percent(quantity):
            known |= self._percent
        if _is_clock(quantity):
            known |= _hours(self._with_shares)
        if unit := unit_of(quantity):
            known |= CALENDAR.get(unit.name, frozenset()) | (self._years if unit.name == "year" else set())
        if derived.pattern("century_before").search(before):
            known |= self._by_word["century"]
        for name, numbers in self._by_word.items():
            if derived.pattern(name).match(after.lstrip()):
                known |= numbers
        return known


def _without_scales(text: str, found: Iterable[Quantity]) -> str:
    """The text with its figures before scale words written out: 1800000 for "1.8 million"."""
    parts, last = [], 0
    for quantity in found:
        if quantity.scaled and not quantity.spelled and last <= quantity.start:
            parts += [text[last : quantity.start], f"{int(max(quantity.readings))}"]
            last = quantity.end
    return "".join([*parts, text[last:]])


def _is_clock(quantity: Quantity) -> bool:
    """Whether a number is a time of day: "6:15", "18 Uhr", "um 18.30"."""
    if derived.pattern("clock").match(quantity.after) or ":" in quantity.text:
        return True
    bare = derived.pattern("clock_before").search(quantity.before)
    return bool(bare and _BARE.match(quantity.after))


def _may_be_clock(quantity: Quantity) -> bool:
    """Whether a number such as 4.30 may be a time of day."""
    quarter = len(quantity.parts) == 2 and quantity.parts[1] in _QUARTERS
    return _is_clock(quantity) or (quarter and unit_of(quantity) is None and not derived.is_percent(quantity))


def _hours(figures: Iterable[Decimal]) -> set[Decimal]:
    """The hours of a clock that hours may be, with twelve or twenty-four of them, and the one before: half past."""
    hours = {figure for figure in figures if 0 <= figure <= _DAY}
    return hours | {(hour + shift) % _DAY for hour in hours for shift in (12, -1, 11)} | {Decimal(0)}


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _numbers_of(text: str, language: str, may_round: bool) -> _Known:
    return _Known(text, language, may_round)
