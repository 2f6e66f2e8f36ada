"""Figures that follow from those of a source: differences, multiples, shares in per cent, euros for cents, months."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from itertools import combinations, pairwise

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.patterns import may_match
from thothy_ai.jobs.checks.periods import named_months
from thothy_ai.jobs.checks.quantities import Quantity
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import Unit, unit_of

_QUARTER = re.compile(r"\b[QTК]([1-4])\b|\b([1-4])Q\b")
_WORD = re.compile(r"^\s?\S{1,3}?(?=\s|以上|超|余|餘|多|を超え|あまり|近く|이상|넘)")  # between a number and "or more"
_HUNDRED, _MAX_SHARE, _TENFOLD = Decimal(100), Decimal(10_000), 10
_SHARE = re.compile(r"(?<![\d.,])(\d|1[0-2])(?!\d)(?=([^\d.;:!?,。！？]{2,24}?)(?<!\d)(\d|1[0-2])(?![\d.,]))")
_OF = re.compile(
    r"(?<!\w)(?:of|in|out|von|sur|de|di|su|em|van|op|z|ze|na|из|з|із|av|af|dari|trong|από|στους|מתוך)(?!\w)|に|中|のうち|里|个|個|分|가운데|중|명|में|من"
)
_RANGE = 16  # characters between the figures of a range
_NOUN = re.compile(r"[\s\u00a0-]?[^\W\d_]")
_CENTS_REACH = 16  # characters between an amount and its cents
_MANY = 40  # years
_IN_YEARS: Mapping[str, Callable[[Decimal], tuple[Decimal, ...]]] = {
    "year": lambda years: (years,),
    "month": lambda months: (months // 12, months // 12 + 1),
}
PERCENT = Unit("share", "percent")


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern of words next to a number, from the table of numerals: "times", "about", "month", ..."""
    return re.compile(table("numerals")["words"][name], re.IGNORECASE)


def amounts_in_cents(found: Sequence[Quantity]) -> set[Decimal]:
    """Amounts in cents as parts of the currency."""
    return {reading / _HUNDRED for quantity in found if is_in_cents(quantity) for reading in quantity.readings}


def is_in_cents(quantity: Quantity) -> bool:
    """Whether a number counts cents, kopeks, sen or the like."""
    return bool(re.match(rf"\s?(?:{pattern('cents').pattern})", quantity.after, re.IGNORECASE))


def with_cents(found: Sequence[Quantity]) -> set[Decimal]:
    """Amounts with their cents: 45.5 for 45 roubles 50 kopecks."""
    return {
        amount + cents / _HUNDRED
        for one, other in pairwise(found)
        if is_in_cents(other) and other.start - one.end <= _CENTS_REACH
        for amount in one.readings
        for cents in other.readings
    }


def in_cents(found: Sequence[Quantity]) -> set[Decimal]:
    """Amounts of a currency as cents."""
    return {reading * _HUNDRED for quantity in found if not quantity.year for reading in quantity.readings}


def rests(found: Iterable[Quantity]) -> set[Decimal]:
    """A hundred minus each percentage of a text."""
    given = (reading for quantity in found if is_percent(quantity) for reading in quantity.readings)
    return {_HUNDRED - reading for reading in given if reading < _HUNDRED}


def in_percent(found: Sequence[Quantity]) -> list[Quantity]:
    """The figures that may be percentages: they say so, belong to a range that says so, or count nothing."""
    return [
        each
        for place, each in enumerate(found)
        if is_percent(each)
        or is_tenths(each)
        or not (unit_of(each) is not None or bool(_NOUN.match(each.after)))
        or any(0 <= other.start - each.end <= _RANGE and is_percent(other) for other in found[place + 1 :][:1])
    ]


def worded_shares(text: str, language: str) -> set[Decimal]:
    """The shares that a text has in words, "three of four", "a fifth": in per cent, with their rest and growth."""
    pairs = [
        (Decimal(match[1]), Decimal(match[3]))
        for match in _SHARE.finditer(in_digits(text, language))
        if _OF.search(match[2])
    ]
    results: set[Decimal] = set()
    for one, other in [*pairs, *numerals.fractions(text)]:
        part, whole = sorted((one, other))
        if 0 < part < whole:
            results |= _rounded(part / whole * _HUNDRED) | _rounded((whole - part) / whole * _HUNDRED)
            results |= _rounded((whole - part) / part * _HUNDRED)
    return results


def multiples(found: Iterable[Quantity]) -> set[Decimal]:
    """The multiples of a text in per cent, and their growth: 180 and 80 for "1.8 times"."""
    times = filter(is_multiple, found)
    return {value * _HUNDRED - less for each in times for value in each.readings if value > 1 for less in (0, _HUNDRED)}


def is_tenths(quantity: Quantity) -> bool:
    """Whether a number counts tenths, as in 8割 and 3成; such a number is read as 8 and as 80."""
    return len(quantity.readings) == 2 and max(quantity.readings) == _TENFOLD * min(quantity.readings) <= _HUNDRED


def of_fractions(text: str) -> set[Decimal]:
    """The fractions of a text in per cent: 20 and 80 for "a fifth"."""
    shares = [part / whole * _HUNDRED for part, whole in numerals.fractions(text) if whole]
    return {near for share in shares for near in _rounded(share)}


def quarters(text: str) -> set[Decimal]:
    """The quarters of a year that a text names, by number or by their months."""
    named = {Decimal(one or other) for one, other in _QUARTER.findall(text)}
    return named | numerals.ordinals(text) | {(month - 1) // 3 + 1 for month in named_months(text)}


def is_percent(quantity: Quantity) -> bool:
    """Whether a number is a percentage."""
    return bool(pattern("percent").match(quantity.after) or pattern("percent_before").search(quantity.before))


def is_multiple(quantity: Quantity) -> bool:
    """Whether a number says how many times: "3 times", 3倍."""
    return max(quantity.readings) < _HUNDRED and bool(pattern("times").match(quantity.after.lstrip()))


def is_about(quantity: Quantity) -> bool:
    """Whether a text calls a number approximate: "about 40", "40 or more", "40명 이상"."""
    after = quantity.after[:24]
    behind = (after, _WORD.sub("", after, count=1))
    return bool(pattern("about").search(quantity.before[-24:]) or any(map(pattern("about_after").search, behind)))


def kind_of(quantity: Quantity) -> Unit | None:
    """The unit of a number; `PERCENT` for a percentage."""
    return PERCENT if is_percent(quantity) else unit_of(quantity)


def _rounded(share: Decimal) -> set[Decimal]:
    if not 1 <= share < _MAX_SHARE or _HUNDRED - 1 < share < _HUNDRED:
        return set()
    return {share.quantize(Decimal(1)), share.quantize(Decimal("0.1")), Decimal(int(share))}


def spans(found: Sequence[Quantity]) -> set[Decimal]:
    """The numbers of years between the years of a text."""
    return {other - one for one, other in combinations(_years(found), 2)}


def other_years(found: Sequence[Quantity], text: str) -> set[Decimal]:
    """The years that a text gives relative to another: the year before 2024, or "five years later"."""
    next_year = pattern("next_year")
    near = Decimal(may_match(next_year.pattern, text) and next_year.search(text) is not None)
    distances = {near} | {
        distance
        for quantity in found
        for reading in quantity.readings
        if (unit := unit_of(quantity)) and unit.name in _IN_YEARS and 0 < reading <= _HUNDRED
        for distance in _IN_YEARS[unit.name](reading)
    }
    return {year + sign * distance for year in _years(found) for distance in distances for sign in (-1, 1)}


def centuries(found: Sequence[Quantity]) -> set[Decimal]:
    """The centuries of the years of a text."""
    return {Decimal((int(year) - 1) // 100 + 1) for year in _years(found)}


def _years(found: Sequence[Quantity]) -> list[Decimal]:
    years = {reading for quantity in found if quantity.year for reading in quantity.readings if 1000 < reading < 2200}
    return sorted(years)[:_MANY]
