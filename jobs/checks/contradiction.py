"""Statements that reverse the source: a dropped negation, the opposite direction of a change, another unit of a number.

A sentence is compared with the source sentence that it renders: in the same language the one that shares most of its
words, in a translation the one at the same place. Only what is plain on both sides counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.figures import turned
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.periods import are_apart, periods
from thothy_ai.jobs.checks.segments import WordIndex, is_spaced, located, words
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.checks.units import other_unit
from thothy_ai.jobs.text import language as detect

_UNSPACED = frozenset({"zh", "ja", "th"})
_PREFIX = 5  # characters that inflected forms of a word share
_MIN_SHARED, _MIN_SHARE = 4, 0.7  # shared words, and their share, that make a sentence a rendering of another
_RELATED = 2  # shared words that relate a sentence of the source to one of the text
_CLAUSE = re.compile(r"[,;:–—()“”„«»\"、，；：。]+")
_AUXILIARIES = frozenset(  # word beginnings; these words may stand between a negation and what it denies
    """been being becom have havin were sido estad siend stato stata stati state esser viene être étaie étant
    blive blivi bleve werde worde wurde zosta będzi были было была буде було""".split()  # noqa: SIM905  a list to read
)
_FIGURE = re.compile(r"(?!(?:19|20)\d\d(?!\d))(?<![\d.,])\d(?:[\d.,]*\d)?")
_BREAK, _BESIDE = (
    re.compile(r"[;:–—。]|[,、，]\s?(?!\d)"),
    25,
)  # characters between a figure and its verb
_MIN_ADDED = 3  # letters of a word that a statement adds to what its evidence denies


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    start: int
    language: str
    content: frozenset[str]

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.start + len(self.text)

    def says(self, table_name: str, word: str) -> bool:
        pattern = _pattern(table_name, word, self.language)
        return bool(pattern and pattern.search(self.text))

    @property
    def denies(self) -> bool:
        return self.says("negation", "strong") or self.says("negation", "soft")

    @property
    def really_denies(self) -> bool:
        """Whether there is a negation, other than in superlatives such as "never before" and in exclamations."""
        pattern = _pattern("negation", "strong", self.language)
        apparent = table("contradiction")["no_negation"].get(self.language)
        text = re.sub(apparent, " ", self.text, flags=re.IGNORECASE) if apparent else self.text
        return bool(pattern and pattern.search(text))


_Rendering = tuple[_Sentence, _Sentence, list[_Sentence]]


def contradiction(text: str, source: str, locale: str, source_locale: str | None = None) -> Rejection | None:
    """Reject a text that drops a negation, reverses the direction of a change, or gives a number another unit."""
    language = primary(locale)
    pairs: Iterable[_Rendering]
    original = primary(source_locale) if source_locale else detect.language(source) or language
    if language == original:
        known = _source(source, language)
        pairs = filter(None, map(known.rendered, _sentences(text, language)))
    else:  # a translation: sentences are compared in order, if both texts have as many
        ours, originals = _sentences(text, language), _sentences(source, original)
        aligned = zip(ours, originals, strict=True) if len(ours) == len(originals) else ()
        pairs = ((one, other, [other]) for one, other in aligned)
    for mine, theirs, related in pairs:
        if reversed_ := _reversal(mine, theirs, related):
            detail = f"{reversed_}: {mine.text[:120]!r}"
            return Rejection(RejectionReason.CONTRADICTS_SOURCE, detail, mine.span, theirs.span)
    return turned(text, source, language, original) or other_unit(text, source, language, original)


def denied(text: str, evidence: str, source: str, locale: str) -> Rejection | None:
    """Reject a statement that its own evidence denies, or that says up where its evidence says down.

    The two are a pair, however few words they share, and each often adds something. So only an unambiguous reversal
    counts, and denials count only in languages whose limits ("not before noon") are known. Texts in different languages
    are not compared.
    """
    language = primary(locale)
    if (detect.language(source) or language) != language:
        return None
    mine, theirs = _sentence(text, language), _sentence(evidence, language)
    fault = ""
    if not any(side.says("limits", "words") or side.says("negation", "open") for side in (mine, theirs)):
        fault = next(
            filter(None, (_denial(mine, _sentence(part, language), theirs) for part in _CLAUSE.split(evidence))), ""
        )
    if not (fault or theirs.says("negation", "strong") or are_apart(periods(text), periods(evidence))):
        idiom = mine.says("limits", "words") or any(side.says("no_turn", "words") for side in (mine, theirs))
        subject, other = (next(_longer(side.text, language), "") for side in (mine, theirs))
        adds_nothing = len(mine.content - theirs.content) <= 1  # the verb
        # The direction of the same figure, or of what both begin with.
        if not idiom and ((subject and subject == other and adds_nothing) or _moved(mine) & _moved(theirs)):
            fault = _turn(mine, theirs, [theirs])
    if not fault:
        return None
    at = source.find(evidence)
    place = (at, at + len(evidence)) if at >= 0 else None
    return Rejection(RejectionReason.CONTRADICTS_SOURCE, f"{fault}: {text[:120]!r}", mine.span, place)


def _denial(mine: _Sentence, clause: _Sentence, evidence: _Sentence) -> str:
    """The part of a statement that a clause denies. The statement must have the word next to the negation and
    everything after it, and add nothing after that. If nothing follows, one side may leave out who acts: "The warehouse
    has not been approved".
    """
    negation, soft = (_pattern("negation", word, clause.language) for word in ("strong", "soft"))
    if (
        not (negation and soft and _pattern("limits", "words", mine.language))
        or mine.denies
        or not clause.really_denies
    ):
        return ""
    ours = [word[:_PREFIX] for word in words(mine.text, mine.language)]
    before, after = (
        [word for word in words(soft.sub(" ", negation.sub(" ", part)), clause.language) if len(word) > 1]
        for part in negation.split(clause.text, 1)
    )
    after = [word[:_PREFIX] for word in after if word[:_PREFIX] not in _AUXILIARIES]
    if not before or not after or after[0] not in ours:  # "Not the city builds flats" denies the actor, not the act
        return ""
    said, actors = (
        {*after[:1], *_longer(" ".join(after), clause.language)},
        {*_longer(" ".join(before), clause.language)},
    )
    actors -= _AUXILIARIES
    told = {word[:_PREFIX] for word in words(evidence.text, evidence.language)}
    added = {word for word in ours[ours.index(after[0]) :] if len(word) >= _MIN_ADDED} - told
    is_same = not actors or actors & mine.content or len(said) == 1
    return "says what its evidence denies" if said <= set(ours) and is_same and not added else ""


def _moved(sentence: _Sentence) -> set[str]:
    """The figures next to a word of direction, except years."""
    pattern = "|".join(
        f"(?:{each.pattern})" for word in ("up", "down") if (each := _pattern("direction", word, sentence.language))
    )
    moves = [match.span() for match in re.finditer(pattern, sentence.text, re.IGNORECASE)] if pattern else []
    return {
        figure[0]
        for figure in _FIGURE.finditer(sentence.text)
        for start, end in moves
        if not _BREAK.search(gap := sentence.text[min(end, figure.end()) : max(start, figure.start())])
        and len(gap) <= _BESIDE
    }


def _longer(text: str, language: str) -> Iterator[str]:
    for word in words(text, language):
        if word.isdigit() or len(word) >= (4 if is_spaced(word[0]) else 2):
            yield word[:_PREFIX]


def _sentence(text: str, language: str, start: int = 0) -> _Sentence:
    return _Sentence(text.replace("’", "'"), start, language, frozenset(_longer(text, language)))


def _sentences(text: str, language: str) -> list[_Sentence]:
    return [_sentence(part, language, start) for start, part in located(text, language)]


class _Source:
    """The sentences of a source in the text's language, found again by their words."""

    def __init__(self, source: str, language: str) -> None:
        self._sentences = _sentences(source, language)
        self._index = WordIndex(each.content for each in self._sentences)

    def rendered(self, mine: _Sentence) -> _Rendering | None:
        """A sentence, the source sentence that it renders, and related source sentences; None if it renders none."""
        counts = self._index.shared(mine.content)
        best, shared = counts.most_common(1)[0] if counts else (0, 0)
        if shared < _MIN_SHARED or shared < _MIN_SHARE * len(mine.content):
            return None
        theirs = self._sentences[best]
        if are_apart(periods(mine.text), periods(theirs.text)):
            return None
        return mine, theirs, [self._sentences[place] for place, count in counts.items() if count >= _RELATED]


_source = lru_cache(maxsize=16)(_Source)  # all fields of an artifact are compared with the same source


def _reversal(mine: _Sentence, theirs: _Sentence, related: list[_Sentence]) -> str:
    """What a sentence reverses: it lacks a negation, or turns around the direction of a change."""
    if _pattern("negation", "strong", mine.language) and _pattern("negation", "strong", theirs.language):
        # Only a sentence that renders all of another one must also have its negation.
        shared = len(mine.content & theirs.content)
        covers = mine.language != theirs.language or shared >= _MIN_SHARE * len(theirs.content)
        if theirs.really_denies and not mine.denies and covers:
            return "says what the source denies"
    return _turn(mine, theirs, related)


def _turn(mine: _Sentence, theirs: _Sentence, related: list[_Sentence]) -> str:
    """The direction of a change that a sentence turns around; empty if it turns none."""
    for one, other in (("up", "down"), ("down", "up")):
        plain = mine.says("direction", one) and not mine.says("direction", other)
        if plain and theirs.says("direction", other) and not any(each.says("direction", one) for each in related):
            return f"says {one} where the source says {other}"
    return ""


@cache
def _pattern(name: str, word: str, language: str) -> re.Pattern[str] | None:
    entry = table("contradiction")[name].get({"no": "da", "nb": "da"}.get(language, language), {}).get(word)
    if not entry:
        return None
    border = ("", "") if language in _UNSPACED else (r"(?<!\w)", r"(?!\w)")
    return re.compile(f"{border[0]}(?:{entry}){border[1]}", re.IGNORECASE)
