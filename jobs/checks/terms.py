"""A producer's terms: banned phrases, a glossary, and terms that must not be translated."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import is_spaced
from thothy_ai.jobs.checks.vocabulary import LEMMATIZED, has_word_lists, lemma
from thothy_ai.jobs.text.phrases import phrase_in


def banned(text: str, phrases: Iterable[str], locale: str) -> Rejection | None:
    """Reject a text that contains a banned phrase, as it is or inflected."""
    for phrase in phrases:
        if found := _found(text, phrase, locale):
            how = "" if phrase_in(found, phrase) else f" as {found!r}"
            return Rejection(RejectionReason.BANNED_PHRASE, f"contains {phrase!r}{how}")
    return None


def mentions(text: str, phrases: Iterable[str], locale: str) -> Rejection | None:
    """Reject a text that lacks one of the phrases that its brief wants, as they are, inflected or in a compound."""
    missing = ", ".join(
        repr(phrase) for phrase in phrases if not (_found(text, phrase, locale) or _renders(text, phrase))
    )
    return Rejection(RejectionReason.MUST_MENTION, f"does not mention {missing}") if missing else None


def _found(text: str, phrase: str, locale: str) -> str | None:
    """The form in which a text has a phrase, also inflected by a dictionary: "delves into" for "delve into"."""
    if found := phrase_in(text, phrase, locale):
        return found
    language = primary(locale)
    if language not in LEMMATIZED or not has_word_lists():
        return None
    words, parts = list(_WORD.finditer(text)), _WORD.findall(phrase)
    for start in range(len(words) - len(parts) + 1 if parts else 0):
        run = words[start : start + len(parts)]
        if all(_has_lemma(word[0], part, language) for word, part in zip(run, parts, strict=True)):
            return text[run[0].start() : run[-1].end()]
    return None


def _has_lemma(form: str, word: str, language: str) -> bool:
    if form.casefold() == word.casefold():
        return True
    if language == "de" and word[0].isupper() and not form[0].isupper():  # "reichen" is no form of "Reich"
        return False
    long_enough = min(len(form), len(word)) >= _MIN_LEMMATIZED
    alike = long_enough and form[:_MIN_PREFIX].casefold() == word[:_MIN_PREFIX].casefold()
    return alike and lemma(form, language).casefold() == lemma(word, language).casefold()


_MIN_LEMMATIZED, _MIN_PREFIX = 5, 3  # letters of a word whose forms are looked up; letters that its forms share
_MAX_ENDING = 2  # letters by which an inflected form may be longer
_MIN_LIKENESS = 74.0  # per cent, of two forms of one word
_WORD = re.compile(r"\w[\w'’-]*")


def glossary(text: str, original: str, terms: Mapping[str, str], keep: Iterable[str]) -> Rejection | None:
    """Reject a translation that lacks the glossary's translation of a term in its original, or a term to be kept.

    Translations may be inflected or part of compounds. A term inside a longer one, such as "bike" in "cargo bike", is
    not checked. Terms to be kept are case-sensitive.
    """
    rest = _normalized(original)
    kept = [term for term in keep if term.strip()]
    wanted = [
        *((term, term, True) for term in kept),
        *((term, terms[term], False) for term in terms if term not in kept),
    ]
    for term, rendering, exact in sorted(wanted, key=lambda entry: -len(entry[0])):
        plain = _normalized(term)
        before = r"(?<!\w)" if is_spaced(plain[:1] or " ") else ""
        ending = ""
        if is_spaced(plain[-1:] or " "):  # a plural or a case counts as the term
            ending = rf"\w{{0,{2 if len(plain) > 3 and not exact else 0}}}(?!\w)"
        pattern = before + r"\s+".join(map(re.escape, plain.split())) + ending
        rest, count = re.subn(pattern, " \x00 ", rest, flags=0 if exact else re.IGNORECASE)
        if count and not (_normalized(rendering) in _normalized(text) if exact else _renders(text, rendering)):
            how = "is not kept" if exact else f"is not rendered as {rendering!r}"
            return Rejection(RejectionReason.GLOSSARY, f"{term!r} {how}")
    return None


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").split())


def _renders(text: str, rendering: str) -> bool:
    """Whether a text has a term: unchanged, in a compound, or with its words inflected and in order."""
    plain, wanted = _normalized(text).casefold(), _normalized(rendering).casefold()
    if wanted in plain:
        return not wanted.isascii() or len(wanted) > 3 or bool(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", plain))
    forms, parts = _WORD.findall(plain), _WORD.findall(wanted)
    if not parts or not is_spaced(wanted[0]):
        return False
    starts = (
        start for start, form in enumerate(forms) if _is_form(form, parts[0]) and len(forms) - start >= len(parts)
    )
    return any(all(map(_is_form, forms[start : start + len(parts)], parts)) for start in starts)


def _is_form(form: str, word: str) -> bool:
    """Whether one word is an inflected form of the other, at its end or, as in "Rad" and "Räder", inside."""
    if form == word:
        return True
    if len(word) < 4:
        return form.startswith(word) and len(form) <= len(word) + 2
    if abs(len(form) - len(word)) > _MAX_ENDING:
        return len(word) >= 5 and word[: max(5, len(word) - 2)] in form
    return form[:2] == word[:2] and fuzz.ratio(form, word) >= _MIN_LIKENESS
