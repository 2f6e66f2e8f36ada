"""Directions of the figures of a text: whether a figure went up or down, and changes from one figure to another."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks import derived
from thothy_ai.jobs.checks.periods import Periods, are_apart, periods
from thothy_ai.jobs.checks.quantities import Quantity, prepared, quantities, span_of
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import unit_of

_UNSPACED = frozenset({"zh", "ja", "th"})
_BEFORE, _AFTER = 48, 28  # characters around a figure that are searched for its direction
_BESIDE, _NEXT = 20, 7  # characters within which a comparison follows a share or measure; and any other figure
_CLAUSE = re.compile(r"[.!?;:।。！？；：،؛\n،，、|]|,(?!\d)|\s[–—-]\s")
_MAX_PLACES = 12  # of one figure whose periods are read
_MIN_FIGURE = 12  # smaller figures are too common to be matched


@dataclass(frozen=True, slots=True)
class _Said:
    """What a text says of one figure with one subject: "up", "down" or both, the periods next to it, and its place."""

    directions: frozenset[str]
    periods: Periods
    first: Quantity

    def reverses(self, other: _Said) -> bool:
        """Whether one is only up and the other only down, in the same period."""
        plain = len(self.directions) == len(other.directions) == 1 and self.directions != other.directions
        return plain and not are_apart(self.periods, other.periods)


def turned(text: str, source: str, language: str, original: str) -> Rejection | None:
    """Reject a figure that goes up in a text and down in its source, or the other way round, and a reversed change."""
    theirs = _directions(source, original)
    for (value, subject), mine in _directions(text, language).items():
        other = theirs.get((value, subject))
        if other and mine.reverses(other):
            (way,), (their_way,) = mine.directions, other.directions
            detail = f"{value.normalize():f} goes {way}, in the source {their_way}"
            spans = span_of(mine.first, text), span_of(other.first, source)
            return Rejection(RejectionReason.CONTRADICTS_SOURCE, detail, *spans)
    changes = _changes(source, original)
    for (first, second), figure in _changes(text, language).items():
        if first != second and (second, first) in changes and (first, second) not in changes:
            detail = f"from {first.normalize():f} to {second.normalize():f} is the reverse of the source"
            spans = span_of(figure, text), span_of(changes[second, first], source)
            return Rejection(RejectionReason.CONTRADICTS_SOURCE, detail, *spans)
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _directions(text: str, language: str) -> dict[tuple[Decimal, str], _Said]:
    """For each figure in digits and what it measures, whether "up" or "down" is said in its clause."""
    found: dict[tuple[Decimal, str], list[tuple[Quantity, str]]] = defaultdict(list)
    for quantity in quantities(text, language):
        large = max(quantity.readings) > _MIN_FIGURE or derived.is_percent(quantity)
        for subject, way in () if quantity.spelled or quantity.year or not large else _said(quantity, language):
            for reading in quantity.readings:
                found[reading, subject].append((quantity, way))
    directions = {}
    for key, said in found.items():
        beside = "\n".join(f"{quantity.before} # {quantity.after}" for quantity, _ in said[:_MAX_PLACES])
        directions[key] = _Said(frozenset(way for _, way in said), periods(beside), said[0][0])
    return directions


def _said(quantity: Quantity, language: str) -> Iterator[tuple[str, str]]:
    """The directions of a figure, each with what it measures; "30 or more" is a bound."""
    before, after = _CLAUSE.split(quantity.before[-_BEFORE:])[-1], _CLAUSE.split(quantity.after[:_AFTER])[0]
    compared = after[: _BESIDE if derived.is_percent(quantity) or unit_of(quantity) else _NEXT]
    compared += f" {before[-4:]}" if language in _UNSPACED else ""
    bounds = _pattern("no_direction", language)
    subjects = _subjects(f"{before} {after}", quantity.before, language)
    for way in ("up", "down"):
        direction, beside = _pattern("direction", language, way), _pattern("comparison", language, way)
        if (
            _pattern("before", language, way).search(before)
            or direction.search(bounds.sub(" ", f"{before} {after}"))
            or beside.search(bounds.sub(" ", compared))
        ):
            yield from ((subject, way) for subject in subjects)
        if any(beside.search(bound) for bound in bounds.findall(compared)):
            yield "bound", way


def _subjects(clause: str, before: str, language: str) -> tuple[str, ...]:
    """What a figure measures, where its clause says so, such as a price or a speed: prices can fall while sales rise.

    A clause that does not say can still be about a price if the text `before` it is.
    """
    if _pattern("price", language).search(clause) or _pattern("about_price", language).search(clause):
        return ("price",)
    if _pattern("speed", language).search(clause):
        return ("speed",)
    return ("", "price") if _pattern("about_price", language).search(before) else ("",)


@cache
def _pattern(name: str, language: str, way: str = "") -> re.Pattern[str]:
    """A pattern of whole words, or of any characters in scripts without spaces. Without words, it finds nothing."""
    entry = table("contradiction")[name].get(language, {})
    words = entry.get(way) if way else entry
    if not words:
        return re.compile("(?!)")
    border = ("", "") if language in _UNSPACED else (r"(?<!\w)", r"(?!\w)")
    return re.compile(f"{border[0]}(?:{words}){border[1]}", re.IGNORECASE)


@lru_cache(maxsize=32)  # as above
def _changes(text: str, language: str) -> dict[tuple[Decimal, Decimal], Quantity]:
    """The changes from one figure to another, each with the first of them."""
    entry = table("contradiction")["from_to"].get({"no": "da", "nb": "da"}.get(language, language))
    if not entry:
        return {}
    gap = r"[^\d.!?。！？\n]{0,24}?" if language in _UNSPACED else r"[^\d.!?\n]{0,24}?\s?"
    pattern = entry.replace("{N}", r"[^\w\s]{0,2}(?<!\d)(\d[\d.,]*\d|\d)").replace("{G}", gap)
    if not (language in _UNSPACED or entry.startswith("{N}")):
        pattern = rf"(?<!\w){pattern}"
    text = prepared(text)
    by_start = {quantity.start: quantity for quantity in quantities(text, language) if not quantity.spelled}
    pairs = (
        (by_start.get(match.start(1)), by_start.get(match.start(2)))
        for match in re.finditer(pattern, text, re.IGNORECASE)
    )
    return {
        (one, other): first
        for first, second in pairs
        if first and second
        for one in first.readings
        for other in second.readings
    }
