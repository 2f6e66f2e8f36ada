"""Quotations in a text whose words the source does not have, or that are attributed to the wrong speaker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import APOSTROPHES, normalized
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import scaled, stems, words
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.text import language as detect

_NESTING = (("«", "»"), ("„", "“”"), ("「", "」"))  # quotation marks that can be nested
_PLAIN = (("“", "”"), ("»", "«"), ("”", "”"), ("『", "』"), ("‚", "‘’"), ("›", "‹"), ("‹", "›"), ("﹁", "﹂"))
_QUOTATION = re.compile(
    "|".join(
        (
            *(
                rf"{first}(?:[^{first}{last}\n]|{first}[^{first}{last}\n]{{0,200}}[{last}]){{3,400}}[{last}]"
                for first, last in _NESTING
            ),
            *(rf"{first}[^{first}{last}“„\n]{{3,400}}[{last}]" for first, last in _PLAIN),
            r"(?<!\w)\"[^\"\n]{3,400}\"",
            APOSTROPHES,
        )
    )
)
_OMISSION = re.compile(r"\s*(?:\[[^\]]{0,60}\]|\(\.\.\.\)|…|\.\.\.)\s*")  # an omission or an editor's insertion
_MIN_WORDS = 4  # English words: a shorter quotation is a term or a title
_LIKE = 85.0  # per cent: a quotation may be adapted to the sentence around it
_CAPITAL = "A-ZÀ-ÖØ-ÞА-ЯЁІЇЄҐΆ-Ω" + "".join(char for char in map(chr, range(0x100, 0x180)) if char.isupper())
_NAME = rf"[{_CAPITAL}][\w'’-]+(?: [{_CAPITAL}][\w'’-]+){{0,2}}"
_ENDING = re.compile(r"[.!?…。！？](?:\s|$)|(?<=[。！？])")  # of a sentence
_MARK = re.compile('[“”„«»"「」『』]')
_REACH = 160  # characters around a quotation in which its speaker is named, and before a name what describes it
_PREFIX = 3  # letters that the forms of a name share
_SHARED = 2  # longer words or figures that a point shares with its own quote


def misquoted(text: str, source: str, locale: str) -> Rejection | None:
    """Reject a quotation of four words or more that the source lacks or attributes to somebody else, or whose speaker
    the source names, but not near these words. Shorter ones are checked only if the text names a speaker.

    A quotation in another language than the source is a translation, and cannot be compared.
    """
    language = primary(locale)
    if (detect.language(source) or language) != language:
        return None
    known, least = normalized(source), scaled(_MIN_WORDS, locale, shrink=False)
    for match in _QUOTATION.finditer(text):
        quotation = match[0][1:-1].strip()
        if len(words(quotation, locale)) < least:  # a term or a title, unless it is a sentence that somebody says
            pattern, ends = _speaker(language), quotation[-1:] in ".,!?…" or text[match.end() : match.end() + 1] == ","
            is_sentence = " " in quotation and quotation[0].isupper() and ends
            if not (pattern and is_sentence and _said_by(text, *match.span(), pattern)):
                continue
        for part in filter(None, map(normalized, _OMISSION.split(quotation))):
            if len(words(part, locale)) > 1 and part not in known and fuzz.partial_ratio(part, known) < _LIKE:
                detail = f"quotes what the source does not say: {quotation[:120]!r}"
                return Rejection(RejectionReason.MISQUOTED, detail, match.span())
        if wrong := _wrong_speaker(text, match.span(), quotation, source, language):
            return Rejection(RejectionReason.MISQUOTED, f"gives {quotation[:100]!r} to {wrong}", match.span())
    return None


def exchanged(place: int, points: Sequence[Mapping[str, str]], source: str, locale: str) -> Rejection | None:
    """Reject the quote of a point that shares neither longer words nor figures with it, if another point's quote shares
    two with it and fewer with its own point: the two were exchanged.

    Does not compare across languages, which the source's language shows.
    """
    language = primary(locale)
    if (detect.language(source) or language) != language:
        return None
    said = stems(points[place]["point"], language)
    shared = [len(said & stems(point["quote"], language)) for point in points]
    best = shared.index(max(shared))
    own = stems(points[best]["point"], language) & stems(points[best]["quote"], language)
    if shared[place] or shared[best] < _SHARED or len(own) >= shared[best]:
        return None
    quote, better = (points[each]["quote"][:80] for each in (place, best))
    detail = f"{quote!r} has nothing of its point, {better!r} has"
    return Rejection(RejectionReason.UNSUPPORTED, detail)


def _wrong_speaker(text: str, span: tuple[int, int], quotation: str, source: str, language: str) -> str | None:
    """The speaker in the text, if the source names that person but attributes the words to another."""
    if (pattern := _speaker(language)) is None:
        return None
    unnamed = _unnamed_speaker(language)
    name = _said_by(text, *span, pattern)
    description = None if name or unnamed is None else _said_by(text, *span, unnamed)
    words_said = quotation.strip(" .,;:!?…。、，")[:60]
    at = source.find(words_said)
    if at < 0 or not (description or (name and _has(source, name))):
        return None
    opening = _MARK.search(source, max(0, at - 2), at)
    closing = _MARK.search(source, at + len(words_said), at + len(words_said) + _REACH) if opening else None
    begin, end = opening.start() if opening else at, closing.end() if closing else at + len(quotation)
    other = _said_by(source, begin, end, pattern)
    if description:
        other = other or (unnamed and _said_by(source, begin, end, unnamed))
        return f"{description}, not {other}" if other and _is_another(description, other, source, language) else None
    if name is None:
        return None
    if other is not None:
        return None if _is_one_person(name, other, source) else f"{name}, not {other}"
    return None if _has(source[max(0, at - _REACH) : end + _REACH], name) else name


def _is_another(description: str, speaker: str, source: str, language: str) -> bool:
    """Whether the source has words of a description, but none of them near any name of the speaker: before it or in the
    rest of its sentence. Descriptions that fit anybody, such as the head of a firm, never count.
    """
    if re.match(rf"(?:{table('speech')['anybody'][language]})(?!\w)", description, re.IGNORECASE):
        return False
    said = stems(description, language)
    names = [match for part in _parts(speaker) if len(part) > _PREFIX for match in re.finditer(re.escape(part), source)]
    around = " ".join(
        source[max(0, name.start() - _REACH) : name.end()] + _ENDING.split(source[name.end() : name.end() + _REACH])[0]
        for name in names
    )
    return bool(said & stems(source, language)) and not said & (stems(around, language) | stems(speaker, language))


def _said_by(text: str, start: int, end: int, pattern: re.Pattern[str]) -> str | None:
    """The speaker that a text names after a quotation, or before it in the same sentence."""
    behind = text[end : end + _REACH]
    # A full stop within the marks ends the sentence around them, too, unless it goes on in small letters.
    ended = re.search(r"[.。…]", text[end - 2 : end]) and re.match(rf"\s+[{_CAPITAL}]", behind)
    after = "" if ended else _MARK.split(_ENDING.split(behind)[0])[0]
    before = _ENDING.split(text[max(0, start - _REACH) : start])[-1]
    named = (*pattern.finditer(after), *reversed(list(pattern.finditer(before))))
    return next((next(filter(None, match.groups())) for match in named), None)


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[\s・·'’-]+", name) if len(part) > 1]


def _has(text: str, name: str) -> bool:
    """Whether a text has a word of a name in some form."""
    return any(part in text or _is_form(part, _parts(text)) for part in _parts(name))


def _is_form(word: str, others: Iterable[str]) -> bool:
    """Whether a word is another grammatical case of one of these: "Ады" for "Ада"."""
    shared = max(_PREFIX, len(word) - 2)
    return any(other[:shared] == word[:shared] for other in others)


def _is_one_person(one: str, other: str, source: str) -> bool:
    """Whether two names share a word, or the source has them side by side: "Tom Reed, the Mayor"."""
    if any(_is_form(part, _parts(other)) for part in _parts(one)):
        return True
    gap = r"[\w'’-]{0,20}[ ,(]{1,3}(?:[\w'’-]{1,20} ?,? ){0,4}"
    pairs = [(a, b) for a in _parts(one) for b in _parts(other)]
    return any(
        a in b or b in a or re.search(rf"{re.escape(a)}{gap}{re.escape(b)}|{re.escape(b)}{gap}{re.escape(a)}", source)
        for a, b in pairs
    )


@cache
def _unnamed_speaker(language: str) -> re.Pattern[str] | None:
    """A pattern that finds an unnamed speaker in the text before or after a quotation."""
    speech = table("speech")
    if not ((articles := speech["articles"].get(language)) and language in speech["anybody"]):
        return None
    said, spoken = rf"(?i:{speech['verbs'][language]})", rf"(?i:{speech['as'][language]})"
    described = rf"(?i:{articles})\s?([^\W\d][\w'’-]+(?: [^\W\d][\w'’-]{{3,}}){{0,2}})"
    return re.compile(
        rf"^\W*{said}\s+{described}"  # , said the council
        rf"|(?:^|[.,;:!?])\s*(?:{spoken})\s+{described}\s?(?:,|$)"  # according to the council,
        rf"|(?:^|[.,;:!?])\s*{described}(?:,[^,\n]{{3,60}},)?\s+{said}\W*$"  # the council said:
        rf"|(?:^|[.,;:!?])\s*{described}\s?:\s*$"  # the council:
    )


@cache
def _speaker(language: str) -> re.Pattern[str] | None:
    """A pattern that finds the speaker's name in the text before or after a quotation."""
    speech = table("speech")
    if own := speech["speakers"].get(language):  # of a script without capitals
        return re.compile(own)
    if not (verbs := speech["verbs"].get(language)):
        return None
    # Not "Vauban" of "a dealer in Vauban says"; where nouns have capitals, nothing behind a word in small letters.
    places = speech["places"].get(language, "")
    behind = "".join(rf"(?<!\b{place} )" for place in places.split("|") if place) or r"(?<![^\W\dA-Z] )"
    said, spoken = rf"(?i:{verbs})", rf"(?i:{speech['as'].get(language, '(?!)')})"
    return re.compile(
        rf"(?:^|[,;:–—-])\s*(?:{spoken}\s+)?{said}\s+({_NAME})"  # , said Ada
        rf"|\b{spoken}\s+({_NAME})"  # according to Ada
        rf"|(?<!\w){behind}({_NAME})(?:,[^,\n]{{3,60}},)?\s+{said}\b"  # Ada, the chair, said
        rf"|^\W*(?:[^\W\d{_CAPITAL}]\S* ){{0,4}}({_NAME})(?:,[^,:\n]{{3,60}},?)?\s?:\s*$"  # the chair, Ada:
        rf"|^\s*[-–—]\s*({_NAME})\W*$"
    )
