"""Copying: how much of a text is verbatim from its source, whether a quotation is in it, and what is untranslated."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.segments import is_spaced, runs, scaled, sentences, words
from thothy_ai.jobs.text.locales import script_of

Words = Sequence[str]
_GRAM = 5  # words that must agree before a passage counts as shared
_MIN_RUN = 8  # words that a passage must have to count towards the share; names and figures are shorter
_WHOLE = 0.95  # of the words of a short text
_MIN_SENTENCE, _MAX_OF_SENTENCE = 10, 0.85  # words of a passage, and its share of a sentence
_NO_QUOTATION = r"(?!\d|[smtnk]\b|em\b|til\b|tis\b|twas\b|cause\b)"  # '90s, 's avonds, 'em
# An apostrophe is inside a word or at its end; what ends a quotation has no word behind it.
APOSTROPHES = "|".join(
    rf"(?<![\w’']){opening}{_NO_QUOTATION}(?=\S)[^\n“”„«»]{{3,400}}?(?<=\S){closing}(?!\w)"
    for opening, closing in ("''", "‘’")
)
QUOTATION = re.compile(
    '“[^”“]{3,400}[”“]|„[^“”„]{3,400}[“”]|«[^«»]{3,400}»|»[^«»]{3,400}«|「[^「」]{3,400}」|『[^『』]{3,400}』|"[^"]{3,400}"|'
    + APOSTROPHES
)
_OMISSION = re.compile(r"\s*[\[(]?(?:…|\.\.\.)[\])]?\s*")


def copied(
    field: str, text: str, source: str, locale: str, max_share: float = 0.5, max_run: int = 12
) -> Rejection | None:
    """Reject a text that has more than `max_run` consecutive words, or `max_share` of its words, from the source.

    Limits are in English words, converted for languages that need more. Figures do not count, since they cannot be
    reworded; neither do quotations, unless they are three times as long as a passage may be. A short text is rejected
    if nearly all of it is one passage of the source.
    """
    most, long_enough = (scaled(limit, locale, shrink=False) for limit in (max_run, _MIN_RUN))
    parts, passages = _passages(text, words(source, locale), locale, most)
    if rejection := _too_much_at_once(field, text, source, locale, passages, most):
        return rejection
    total = sum(map(_count, parts))
    longest = max(passages, key=_count, default=[])
    count = sum(size for size in map(_count, passages) if size >= long_enough)
    whole = _count(longest) >= long_enough and _count(longest) > _WHOLE * total
    if whole or count > max(most, max_share * total):
        share = f"{max(count, _count(longest)) / total:.0%}"
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{share} of {field} stands verbatim in the source")
    return None


def copied_passage(field: str, text: str, source: str, locale: str, max_run: int = 12) -> Rejection | None:
    """Reject a text with a sentence of the source, or with more than `max_run` consecutive words of it."""
    most = scaled(max_run, locale, shrink=False)
    _, passages = _passages(text, words(source, locale), locale, most)
    return _too_much_at_once(field, text, source, locale, passages, most)


def _too_much_at_once(
    field: str, text: str, source: str, locale: str, passages: list[list[str]], most: int
) -> Rejection | None:
    longest = next((passage for passage in passages if _count(passage) > most), None)
    if longest:
        return Rejection(RejectionReason.COPIED_FROM_SOURCE, f"{field} copies: {' '.join(longest)[:160]!r}")
    # One passage of the source makes up most of this sentence, and is too long for a coincidence.
    least = scaled(_MIN_SENTENCE, locale, shrink=False)
    unquoted = words(QUOTATION.sub(" ", source), locale)
    for sentence in sentences(QUOTATION.sub(" ", text), locale):
        found = words(sentence, locale)
        shared = max(map(_count, _shared(found, unquoted)), default=0)
        if shared >= least and shared >= _MAX_OF_SENTENCE * _count(found):
            detail = f"a sentence of {field} is one of the source: {sentence[:160]!r}"
            return Rejection(RejectionReason.COPIED_FROM_SOURCE, detail)
    return None


def _passages(text: str, source: Words, locale: str, most: int) -> tuple[list[Words], list[list[str]]]:
    """The words of a text outside its quotations, and the passages of the source among them, in order."""
    between = QUOTATION.split(text)
    quotations = (words(quotation, locale) for quotation in QUOTATION.findall(text))
    if any(_count(passage) > 3 * most for quotation in quotations for passage in _shared(quotation, source)):
        between = [text]  # a quotation is too long a passage of the source: count them all
    parts: list[Words] = [words(part, locale) for part in between]
    return parts, [passage for part in parts for passage in _shared(part, source)]


def _count(passage: Words) -> int:
    return sum(not word[0].isdigit() for word in passage)


def _shared(written: Words, source: Words) -> list[list[str]]:
    """The passages whose runs of five words are all in the source; in linear time."""
    known = set(runs(source, _GRAM))
    passages: list[list[str]] = []
    last = -2
    for start, gram in enumerate(runs(written, _GRAM)):
        if gram not in known:
            continue
        if start == last + 1:
            passages[-1].append(gram[-1])
        else:
            passages.append(list(gram))
        last = start
    return passages


def quoted(field: str, quote: str, source: str) -> Rejection | None:
    """Reject a quotation that is not in the source, ignoring case, white space, punctuation and omissions ("…")."""
    parts = list(filter(None, map(normalized, _OMISSION.split(quote))))
    known = normalized(source)
    position = 0
    for part in parts:  # each begins and ends at the borders of words
        start = known.find(part, position)
        while start >= 0 and (_joined(known, start) or _joined(known, start + len(part))):
            start = known.find(part, start + 1)
        if start < 0:
            break
        position = start + len(part)
    else:
        if parts:
            return None
    what = f"is not in the source: {quote[:80]!r}" if quote.strip() else "is empty"
    return Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, f"{field} {what}")


@lru_cache(maxsize=64)  # all quotations of an artifact are looked for in the same source
def normalized(text: str) -> str:
    """A text casefolded and in compatibility form (NFKC), with single spaces for all but letters, marks and digits."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(
        "".join(char if char.isalnum() or unicodedata.category(char).startswith("M") else " " for char in plain).split()
    )


def _joined(text: str, position: int) -> bool:
    return 0 < position < len(text) and is_spaced(text[position - 1]) and is_spaced(text[position])


_MIN_UNTRANSLATED = 5  # words: shorter sentences may stay as they are, like titles
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
    mine, theirs = (_VERBATIM.sub(" ", each) for each in (text, original))
    if len(words(theirs, locale)) >= 3 and fuzz.ratio(normalized(mine), normalized(theirs)) > _MAX_LIKENESS:
        return Rejection(RejectionReason.UNTRANSLATED, "is nearly the same as the original")
    return untranslated_passage(text, original, locale)


def untranslated_passage(text: str, original: str, locale: str) -> Rejection | None:
    """Reject a translation that has a sentence or nine words in succession of its original."""
    mine, theirs = (_VERBATIM.sub(" ", each) for each in (text, original))
    known = f" {' '.join(words(theirs, locale))} "
    shared = set(runs(words(theirs, locale), scaled(_MAX_RUN, locale)))
    least = scaled(_MIN_UNTRANSLATED, locale)
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
