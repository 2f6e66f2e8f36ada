"""Slips that a proofreader strikes: a word written twice, a space before a comma, a text in capitals."""

from __future__ import annotations

import re

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary

# Words that never follow themselves; others may ("had had", "vous vous", "die die").
_NEVER_TWICE = {
    "en": "the|a|an|of|to|and|is|are|was|for|with|at|by|from|this|its|their|or|be",
    "de": "und|zu|ist|von|mit|ein|eine|einen|im|den|dem|auf|für|nicht|oder",
    "fr": "le|la|les|de|des|du|et|un|une|dans|pour|sur|est|au|aux",
    "es": "el|la|los|las|de|y|en|un|una|que|con|por|para|del|al",
    "it": "il|la|lo|gli|di|e|un|una|in|per|con|del|della",
    "pt": "os|as|de|e|um|uma|em|para|com|do|da|no|na",
    "nl": "het|een|van|en|in|met|voor|op|te|niet|naar",
    "sv": "och|att|en|ett|på|av|för|med|till",
    "pl": "i|w|z|na|do|się|nie|jest|od",
    "ru": "и|в|на|с|не|к|для|из|по",
}
_BEFORE_COMMA = re.compile(r"\w( +[,.;])(?=\s|$)(?<! \.\.)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS, _MIN_LETTERS = 4, 20  # of a text in capitals: fewer may be abbreviations
_MAX_CAPITALS = 0.7  # of the letters


def slip(text: str, locale: str) -> Rejection | None:
    """Reject a word that is written twice, a space before a comma or full stop, and a text in capitals."""
    language = primary(locale)
    if never := _NEVER_TWICE.get(language):
        twice = re.search(rf"(?<![\w'’-])({never})\s+\1(?![\w'’-])", text, re.IGNORECASE)
        if twice and not twice[0].isupper():
            return _slip(f"has a word twice: {twice[0]!r}", twice.span())
    if (space := _BEFORE_COMMA.search(text)) and (language != "fr" or space[1].strip() != ";"):
        return _slip("has a space before a mark", space.span(1))
    found = _WORD.findall(text)
    letters = [char for word in found for char in word if char.upper() != char.lower()]
    shouts = len(found) >= _MIN_WORDS and len(letters) >= max(_MIN_LETTERS, sum(map(len, found)) / 2)
    if shouts and sum(map(str.isupper, letters)) > _MAX_CAPITALS * len(letters):
        return _slip("is written in capitals", (0, len(text)))
    return None


def _slip(detail: str, span: tuple[int, int]) -> Rejection:
    return Rejection(RejectionReason.TYPOGRAPHY, detail, span)
