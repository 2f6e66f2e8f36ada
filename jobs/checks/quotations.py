"""Quotations in a text: words that its source does not have, and words that are given to another speaker."""

from __future__ import annotations

import re
from functools import cache

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import words
from thothy_ai.jobs.checks.tables import table
from thothy_ai.jobs.text import language as detect

_QUOTATION = re.compile(
    r"[“„]([^“”„\n]{3,400})[”“]|«([^«»\n]{3,400})»|»([^«»\n]{3,400})«|「([^「」\n]{3,400})」|(?<!\w)\"([^\"\n]{3,400})\""
)
_OMISSION = re.compile(r"\s*(?:\[[^\]]{0,60}\]|\(\.\.\.\)|…|\.\.\.)\s*")  # or an editor's insertion
_MIN_WORDS = 4  # fewer are a term or a title, which an editor may mark so
_LIKE = 85.0  # per cent: adapted to the sentence around it
_NAME = r"[A-ZÀ-ÖØ-ÞА-ЯЁ][\w'’-]+(?: [A-ZÀ-ÖØ-ÞА-ЯЁ][\w'’-]+){0,2}"
_REACH = 160  # characters around a quotation in which the source names who says it


def misquoted(text: str, source: str, locale: str) -> Rejection | None:
    """Reject a quotation of four words or more that the source does not have, or whose speaker is named in the source,
    but not near these words.

    A quotation in another language than the source's is a translation, which cannot be compared.
    """
    language = primary(locale)
    if (detect.language(source) or language) != language:
        return None
    known = normalized(source)
    for match in _QUOTATION.finditer(text):
        quotation = next(filter(None, match.groups()))
        if len(words(quotation, locale)) < _MIN_WORDS:
            continue
        for part in filter(None, map(normalized, _OMISSION.split(quotation))):
            if len(part.split()) > 1 and part not in known and fuzz.partial_ratio(part, known) < _LIKE:
                detail = f"quotes what the source does not say: {quotation[:120]!r}"
                return Rejection(RejectionReason.MISQUOTED, detail, match.span())
        if wrong := _wrong_speaker(text, match, quotation, source, language):
            return Rejection(RejectionReason.MISQUOTED, f"gives {quotation[:100]!r} to {wrong}", match.span())
    return None


def _wrong_speaker(text: str, match: re.Match[str], quotation: str, source: str, language: str) -> str | None:
    """Who says this in the text, if the source names that person only elsewhere."""
    pattern = _speaker(language)
    if pattern is None:
        return None
    # Names behind the quotation; before it, those of the same sentence only.
    before = re.split(r"[.!?…]\s", text[max(0, match.start() - _REACH) : match.start()])[-1]
    after = re.split(r"[.!?…](?:\s|$)|[“„«\"]", text[match.end() : match.end() + _REACH])[0]
    named = [name for part in (after, before) for found in pattern.finditer(part) if (name := found[1] or found[2])]
    at = source.find(quotation.strip(" .,;:!?")[:60])
    if not named or at < 0:
        return None
    around = source[max(0, at - _REACH) : at + len(quotation) + _REACH]
    parts = named[0].split()
    elsewhere = any(re.search(rf"\b{re.escape(part)}", source) for part in parts)
    near = any(re.search(rf"\b{re.escape(part)}", around) for part in parts)
    return named[0] if elsewhere and not near else None


@cache
def _speaker(language: str) -> re.Pattern[str] | None:
    """A name before or after a verb of speech."""
    verbs = table("speech")["verbs"].get(language)
    if not verbs:
        return None
    # Not "Vauban" of "a dealer in Vauban says".
    return re.compile(rf"\b(?:{verbs})\s+({_NAME})|(?<![^\W\dA-Z] )({_NAME}),?\s+(?:{verbs})\b")
