"""Clauses that say the opposite of a clause of the source about the same thing: up for down, dearer for cheaper.

A clause of the source is about the same thing if it is the one that shares most words with a clause of the text. Only
what is plain on both sides counts: one of two opposites, no negation, and nowhere near it in the source what the text
says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from thothy_ai.jobs.checks.periods import Periods, are_apart, periods
from thothy_ai.jobs.checks.segments import WordIndex, beginnings, sentences, stems
from thothy_ai.jobs.checks.tables import table

_UNSPACED = frozenset({"zh", "ja", "th"})
_CLAUSE = re.compile(r"(?<!\d)[,،、，]|[,،、，](?!\d)|[;:；：؛—–|()（）]")
_MIN_SHARED, _MIN_SHARE = 2, 0.34
_MANIFOLD = frozenset({"multiple", "permission"})  # "half of it" is the opposite of nothing
_FAR_AHEAD = 1.5  # times as many rare words as the next sentence shares
_RELATED = 2  # shared words of a sentence that may say the same as the text


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a sentence, its longer words, and which side of each pair of opposites it is on."""

    text: str
    content: frozenset[str]
    sides: Mapping[str, frozenset[int]]
    periods: Periods
    denies: bool

    def compares(self, other: _Clause, subject: str) -> bool:
        """Whether a subject may be that of both: of one period, and a change not of a price in one of them only."""
        other_price = subject == "change" and ("price" in self.sides) != ("price" in other.sides)
        return not other_price and not are_apart(self.periods, other.periods)


def opposite_sentence(text: str, source: str, language: str) -> str | None:
    """A sentence that is plainly on the other side than the one sentence of the source that it must be about."""
    known, index = _indexed(source, language, _whole_sentences)
    for mine in _whole_sentences(text, language):
        if mine.denies or not any(len(side) == 1 for side in mine.sides.values()):
            continue
        weights = index.weights(mine.content)
        ranked = sorted(weights, key=lambda place: (-weights[place], place))[:2]
        if not ranked or weights[ranked[0]] < _FAR_AHEAD * sum(weights[place] for place in ranked[1:]):
            continue
        best = known[ranked[0]]
        if len(mine.content & best.content) < _MIN_SHARED or best.denies:
            continue
        for subject, side in _plain(mine):
            if (
                subject in _MANIFOLD
                or best.sides.get(subject, frozenset()) != {1 - side}
                or not mine.compares(best, subject)
            ):
                continue
            # The clause of that sentence that is on the other side has some of the words, rather than a figure only.
            clauses = (part for part in _CLAUSE.split(best.text) if subject in sides(part, language))
            shared = (word for part in clauses for word in mine.content & _subject(part, language))
            if not all(word.isdigit() for word in shared):
                return f"{mine.text[:100]!r} is the opposite of {best.text[:100]!r}"
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _indexed(
    source: str, language: str, divided: Callable[[str, str], Iterator[_Clause]]
) -> tuple[list[_Clause], WordIndex]:
    known = list(divided(source, language))
    return known, WordIndex(each.content for each in known)


def _whole_sentences(text: str, language: str) -> Iterator[_Clause]:
    for part in sentences(text, language):
        yield _Clause(part, _subject(part, language), sides(part, language), periods(part), _denies(part, language))


def _subject(text: str, language: str) -> frozenset[str]:
    """The beginnings of the words of a sentence without those of opposites."""
    return beginnings(_without_opposites(text, language), language)


def _without_opposites(text: str, language: str) -> str:
    plain = text.replace("’", "'")
    for _, pair in _pairs(language):
        for pattern in pair:
            plain = pattern.sub(" ", plain)
    return plain


def opposite_clause(text: str, source: str, language: str) -> str | None:
    """A clause that is on the other side than all clauses of the source that share most words with it."""
    known, index = _indexed(source, language, _clauses)
    for clause in _clauses(text, language):
        if clause.denies or not any(len(sides) == 1 for sides in clause.sides.values()):
            continue
        counts = index.shared(clause.content)
        most = max(counts.values(), default=0)
        best = [place for place, count in counts.items() if count == most]
        if not best or counts[best[0]] < max(_MIN_SHARED, _MIN_SHARE * len(clause.content)):
            continue
        related = [known[place] for place, count in counts.items() if count >= _RELATED - 1]
        for subject, side in _plain(clause):
            compared = [known[place] for place in best if clause.compares(known[place], subject)]
            plainly = all(each.sides.get(subject, frozenset()) == {1 - side} and not each.denies for each in compared)
            if compared and plainly and not any(side in each.sides.get(subject, ()) for each in related):
                return f"{clause.text.strip()[:100]!r} is the opposite of {known[best[0]].text.strip()[:100]!r}"
    return None


def _plain(clause: _Clause) -> Iterator[tuple[str, int]]:
    for subject, sides in clause.sides.items():
        if len(sides) == 1:
            yield subject, next(iter(sides))


def _clauses(text: str, language: str) -> Iterator[_Clause]:
    for sentence in sentences(text, language):
        named: Periods = {}
        for part in filter(None, map(str.strip, _CLAUSE.split(sentence))):
            named = periods(part) or named  # of "In May, prices fell", the second clause is about May, too
            content = stems(_without_opposites(part, language), language)
            yield _Clause(part, content, sides(part, language), named, _denies(part, language))


def _denies(text: str, language: str) -> bool:
    denial = _words(table("contradiction")["negation"].get(language, {}).get("strong", ""), language)
    return denial.search(text) is not None


def sides(text: str, language: str) -> dict[str, frozenset[int]]:
    """For each pair of opposites of which a text has a word, the sides that it is on: 0, 1 or both."""
    found = {
        subject: frozenset(side for side, pattern in enumerate(pair) if pattern.search(text))
        for subject, pair in _pairs(language)
    }
    return {subject: on for subject, on in found.items() if on}


@cache
def _pairs(language: str) -> tuple[tuple[str, tuple[re.Pattern[str], re.Pattern[str]]], ...]:
    entries = {subject: pair[language] for subject, pair in table("opposites").items() if language in pair}
    change = table("contradiction")["direction"].get({"no": "da", "nb": "da"}.get(language, language))
    entries |= {"change": [change["up"], change["down"]]} if change else {}
    return tuple(
        (subject, (_words(one, language), _words(other, language))) for subject, (one, other) in entries.items()
    )


@cache
def _words(pattern: str, language: str) -> re.Pattern[str]:
    """Whole words; in Arabic, with what is written together with them."""
    if language in _UNSPACED:
        return re.compile(pattern or r"(?!)", re.IGNORECASE)
    prefix = "[وفبلك]{0,2}(?:ال)?" if language == "ar" else ""
    return re.compile(rf"(?<!\w){prefix}(?:{pattern})(?!\w)" if pattern else r"(?!)", re.IGNORECASE)
