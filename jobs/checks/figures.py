"""What is said of the figures of a text: whether they went up or down, and from which to which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from functools import cache, lru_cache

from thothy_ai.jobs.checks import derived
from thothy_ai.jobs.checks.quantities import Quantity, prepared, quantities
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import unit_of

_UNSPACED = frozenset({"zh", "ja", "th"})
_BEFORE, _AFTER = 48, 28  # characters around a figure in which its direction is looked for
_BESIDE, _NEXT = 20, 7  # characters in which a comparison follows a share or measure, and any other figure
_CLAUSE = re.compile(r"[.!?;:。！？；：،؛\n،，、|]|,(?!\d)|\s[–—-]\s")
_MIN_FIGURE = 12  # smaller ones stand for too many things


def turned(text: str, source: str, language: str, original: str) -> str | None:
    """A figure that goes up in a text and down in its source, or the reverse, or a change that is told backwards."""
    theirs = _directions(source, original)
    for value, mine in _directions(text, language).items():
        other = theirs.get(value, frozenset())
        if len(mine) == 1 and len(other) == 1 and mine != other:
            return f"{value.normalize():f} goes {next(iter(mine))}, in the source {next(iter(other))}"
    changes = _changes(source, original)
    for first, second in _changes(text, language):
        if first != second and (second, first) in changes and (first, second) not in changes:
            return f"from {first.normalize():f} to {second.normalize():f} is the reverse of the source"
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _directions(text: str, language: str) -> dict[Decimal, frozenset[str]]:
    """For each figure in digits, whether "up" or "down" is said in its clause."""
    found: dict[Decimal, set[str]] = defaultdict(set)
    for quantity in quantities(text, language):
        if _is_telling(quantity):
            for reading in quantity.readings:
                found[reading] |= set(_said(quantity, language))
    return {value: frozenset(said) for value, said in found.items()}


def _is_telling(quantity: Quantity) -> bool:
    """Whether a figure, rather than a year or a small number, is said to go up or down."""
    return not (quantity.spelled or quantity.year) and (
        max(quantity.readings) > _MIN_FIGURE or derived.is_percent(quantity)
    )


def _said(quantity: Quantity, language: str) -> Iterator[str]:
    before = _CLAUSE.split(quantity.before[-_BEFORE:])[-1]
    after = _CLAUSE.split(quantity.after[:_AFTER])[0]
    compared = after[: _BESIDE if derived.is_percent(quantity) or unit_of(quantity) else _NEXT]
    compared += f" {before[-4:]}" if language in _UNSPACED else ""
    for way in ("up", "down"):
        pattern, beside = _pattern("direction", way, language), _pattern("comparison", way, language)
        if (pattern and pattern.search(f"{before} {after}")) or (beside and beside.search(compared)):
            yield way


@cache
def _pattern(name: str, way: str, language: str) -> re.Pattern[str] | None:
    entry = table("contradiction")[name].get(language, {}).get(way)
    if not entry:
        return None
    border = ("", "") if language in _UNSPACED else (r"(?<!\w)", r"(?!\w)")
    return re.compile(f"{border[0]}(?:{entry}){border[1]}", re.IGNORECASE)


@lru_cache(maxsize=32)  # as above
def _changes(text: str, language: str) -> frozenset[tuple[Decimal, Decimal]]:
    """The changes that a text tells of, from one figure to another one."""
    pattern = _change(language)
    if pattern is None:
        return frozenset()
    changes, text = set(), prepared(text)
    by_end = {quantity.start: quantity for quantity in quantities(text, language) if not quantity.spelled}
    for match in pattern.finditer(text):
        first, second = by_end.get(match.start(1)), by_end.get(match.start(2))
        if first and second:
            changes |= {(one, other) for one in first.readings for other in second.readings}
    return frozenset(changes)


@cache
def _change(language: str) -> re.Pattern[str] | None:
    entry = table("contradiction")["from_to"].get({"no": "da", "nb": "da"}.get(language, language))
    if not entry:
        return None
    gap = r"[^\d.!?。！？\n]{0,24}?" if language in _UNSPACED else r"[^\d.!?\n]{0,24}?\s?"
    number = r"[^\w\s]{0,2}(?<!\d)(\d[\d.,]*\d|\d)"
    filled = entry.replace("{N}", number).replace("{G}", gap)
    return re.compile(
        filled if language in _UNSPACED or entry.startswith("{N}") else rf"(?<!\w){filled}", re.IGNORECASE
    )
