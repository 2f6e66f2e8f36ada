"""The task of a translation: the text, its languages and its terms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.kinds.translation.inline import has_words
from thothy_ai.jobs.text import language
from thothy_ai.jobs.text.locales import LANGUAGES, language_of, locale_name, tag_of

Formality = Literal["neutral", "formal", "informal"]
DETECTED_CHARS = 2_000  # of a text that suffice to detect its language
MIN_LETTERS = 40  # of a text whose language can be detected reliably


@dataclass(frozen=True)
class Task:
    """A text to translate. `source` is the text that contains it; with `source_locale` None, its language is
    detected.
    """

    text: str
    source: str
    target: str
    source_locale: str | None = None
    glossary: tuple[tuple[str, str], ...] = ()
    keep: tuple[str, ...] = ()
    formality: Formality = "neutral"

    @cached_property
    def origin(self) -> str:
        """The locale of the text: as given, or its language."""
        return self.source_locale or detected(self.text) or detected(self.source) or "en"

    @cached_property
    def given(self) -> str:
        """The text, and the words that its translation may or must have."""
        return " ".join((self.source, self.text, *self.keep, *(translation for _, translation in self.glossary)))

    @property
    def same_language(self) -> bool:
        """Whether the text is adapted to another region or script, rather than translated."""
        return language_of(self.origin) == language_of(self.target)

    def already_there(self) -> Rejection | None:
        """Reject a text that is already in the target language, unless its given region or script differs."""
        adapted = len(tag_parts(self.source_locale or "")) > 1
        if not self.same_language or adapted or not _certain(self.text):
            return None
        name = locale_name(self.target)
        advice = "; name its region in source_locale to adapt it" if len(tag_parts(self.target)) > 1 else ""
        return Rejection(RejectionReason.UNTRANSLATED, f"the text is in {name} already{advice}")

    def terms_in(self, text: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """The glossary entries and kept terms that apply to a text. Of overlapping terms, the longest applies."""
        rest, glossary, keep = text, {}, []
        wanted = dict(self.glossary) | {term: term for term in self.keep}
        for term in sorted(wanted, key=len, reverse=True):
            rest, count = term_pattern(term).subn("\x00", rest)
            if count and term in self.keep:
                keep.append(term)
            elif count:
                glossary[term] = wanted[term]
        return glossary, tuple(keep)


@lru_cache(maxsize=4096)
def term_pattern(term: str) -> re.Pattern[str]:
    """The pattern of a term, ignoring case; it matches whole words where the term begins or ends with Latin letters."""
    before = r"(?<![^\W\d_])" if term[0].isascii() and term[0].isalnum() else ""
    after = r"(?![^\W\d_])" if term[-1].isascii() and term[-1].isalnum() else ""
    return re.compile(before + r"\s+".join(map(re.escape, term.split())) + after, re.IGNORECASE)


def contradictions(glossary: Mapping[str, str], keep: tuple[str, ...]) -> Iterator[str]:
    """The conflicts in a glossary, in words."""
    seen: dict[str, str] = {}
    for term, translation in glossary.items():
        folded = " ".join(term.split()).casefold()
        other = seen.setdefault(folded, translation)
        if other != translation:
            yield f"{term!r} is translated as {other!r} and as {translation!r}"
        for kept in keep:
            if term_pattern(kept).search(term) and not term_pattern(kept).search(translation):
                yield f"{term!r} is translated as {translation!r}, but {kept!r} is to be kept"


def tag_parts(locale: str) -> tuple[str, ...]:
    """The parts that a locale has: its language, and a script or region if it names one."""
    tag = tag_of(locale)
    return tuple(filter(None, tag)) if tag else ()


def _certain(text: str) -> bool:
    return sum(map(str.isalpha, text[:DETECTED_CHARS])) >= MIN_LETTERS and has_words(text)


@lru_cache(maxsize=256)
def detected(text: str) -> str | None:
    """The code of the language that the text's beginning is most likely in; None if it has few letters."""
    beginning = text[:DETECTED_CHARS]
    if not _certain(beginning):
        return None
    name = next(iter(language.confidences(beginning)), "")
    return next((code for code, known in LANGUAGES.items() if known.detector_name == name), None)
