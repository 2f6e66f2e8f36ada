"""Translations that are, in part, their original."""

from __future__ import annotations

import re

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized
from thothy_ai.jobs.checks.segments import runs, scaled, sentences, words
from thothy_ai.jobs.text.locales import script_of

_MIN_SENTENCE = 5  # words that a sentence has at least before it cannot stay as it is, like a title
_MIN_IN_LATIN = 3  # the same in another script, where even a title seldom stays
_MAX_RUN = 9  # words in succession
_MAX_LIKENESS = 92.0  # per cent, of the whole text and its original
_VERBATIM = re.compile(
    r"```.{0,20000}?```|`[^`\n]{1,200}`|https?://\S+|[“„«\"][^“”„«»\"\n]{1,300}[”“»\"]|[*_][^*_\n]{1,200}[*_]",
    re.DOTALL,
)


def untranslated(text: str, original: str, locale: str) -> Rejection | None:
    """Reject a translation that is its original, or has a sentence or nine words in succession of it.

    Code, links, and what is in quotation marks or italics, such as titles, may stay.
    """
    mine, theirs = _VERBATIM.sub(" ", text), _VERBATIM.sub(" ", original)
    if len(words(theirs, locale)) >= 3 and fuzz.ratio(normalized(mine), normalized(theirs)) > _MAX_LIKENESS:
        return Rejection(RejectionReason.UNTRANSLATED, "is nearly the same as the original")
    return _passage(mine, theirs, locale)


def untranslated_passage(text: str, original: str, locale: str) -> Rejection | None:
    """Reject a translation that has a sentence or nine words in succession of its original."""
    return _passage(_VERBATIM.sub(" ", text), _VERBATIM.sub(" ", original), locale)


def _passage(mine: str, theirs: str, locale: str) -> Rejection | None:
    known = f" {' '.join(words(theirs, locale))} "
    shared = set(runs(words(theirs, locale), scaled(_MAX_RUN, locale)))
    least = scaled(_MIN_SENTENCE, locale)
    least_in_latin = _MIN_IN_LATIN if script_of(locale) != "Latn" else least
    for sentence in sentences(mine, locale):
        letters = [word[0] for word in sentence.split() if word[0].isalpha()]
        if sum(not letter.isupper() for letter in letters) <= len(letters) / 2:
            continue  # a list of names stays as it is
        part = words(sentence, locale)
        long_enough = len(part) >= (least_in_latin if sentence.isascii() else least)
        whole = long_enough and f" {' '.join(part)} " in known
        if whole or any(run in shared for run in runs(part, scaled(_MAX_RUN, locale))):
            return Rejection(RejectionReason.UNTRANSLATED, f"is not translated: {sentence[:80]!r}")
    return None
