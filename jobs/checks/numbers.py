"""Numbers: those that the source does not have, and those that a translation loses or adds."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.checks import derived, numerals
from thothy_ai.jobs.checks.guises import eras, rounded
from thothy_ai.jobs.checks.months import months, named_months
from thothy_ai.jobs.checks.quantities import Quantity, bound, quantities
from thothy_ai.jobs.checks.units import CALENDAR, unit_of
from thothy_ai.jobs.verdict import Rejection, RejectionReason

_MIN_SPELLED = 11  # below, words for numbers are idiom as often as figures: "one of the two"
_ROUND = frozenset(Decimal(10) ** power for power in (2, 3, 6, 9))  # "per cento" and "mille grazie" are no figures
_MAX_LOOSE = 2  # "both", "a pair", the dual: a translation has many ways to say one or two
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
    lacking = next((quantity for quantity in written if not known.has(quantity, text)), None)
    return _rejection(f"{lacking.text!r} is not in the source") if lacking else None


def numbers_kept(text: str, original: str, source_locale: str, locale: str) -> Rejection | None:
    """Reject a translation that lacks a number of its original, or has one that the original lacks."""
    known = _numbers_of(original, primary(source_locale), may_round=False)
    written = quantities(text, primary(locale), listed=False)
    if added := next((quantity for quantity in written if not known.has(quantity, text)), None):
        return _rejection(f"{added.text!r} is not in the original")
    kept, can_spell = _numbers_of(text, primary(locale), may_round=False), numerals.can_spell(primary(locale))
    for quantity in quantities(original, primary(source_locale)):
        if not (quantity.spelled or kept.has(quantity, original) or _may_go(quantity, can_spell)):
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
        found = quantities(text, language)
        exact = {reading for quantity in found for reading in (*quantity.readings, *quantity.parts)}
        short = {Decimal(int(year) % 100) for quantity in found if quantity.year for year in quantity.readings}
        self._figures = exact | bound(text) | short | eras(exact, text) | months(text) | {Decimal(1)}
        self._about: set[Decimal] = set()
        self._years, self._in_units = derived.spans(found), derived.conversions(found, text)
        self._by_word = {
            "month": named_months(text),
            "decade": {year - year % 10 for year in exact if 1500 < year < 2200},
        }
        if may_round:
            self._figures |= {near for quantity in found for near in rounded(quantity)} | derived.sums(found, text)
            self._about = {near for quantity in found for near in rounded(quantity, "0.1")}
            self._by_word["times"] = derived.multiples(found, text)
            self._by_word["percent"] = derived.shares(found, text, language)
        self._with_shares = self._figures | numerals.shares(text)

    def has(self, quantity: Quantity, text: str) -> bool:
        """Whether a number of a text is known. One below eleven in words always is; half is fifty in digits only."""
        if quantity.spelled:
            return min(quantity.readings) < _MIN_SPELLED or bool(quantity.readings & (self._figures | _ROUND))
        if quantity.readings & (self._with_shares | self._beside(quantity, text)):
            return True
        return bool(quantity.parts and set(quantity.parts) <= self._figures)

    def _beside(self, quantity: Quantity, text: str) -> set[Decimal]:
        """The numbers that are known because of what stands before or after one."""
        before, after = text[max(0, quantity.start - 24) : quantity.start], text[quantity.end : quantity.end + 16]
        known: set[Decimal] = set()
        if derived.pattern("about").search(before) or derived.pattern("about_after").search(after):
            known |= self._about
        if unit := unit_of(quantity, text):
            known |= (
                self._in_units.get(unit.name, set())
                | CALENDAR.get(unit.name, frozenset())
                | (self._years if unit.name == "year" else set())
            )
        for name, numbers in self._by_word.items():
            if derived.pattern(name).match(after.lstrip()):
                known |= numbers
        return known


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _numbers_of(text: str, language: str, may_round: bool) -> _Known:
    return _Known(text, language, may_round)
