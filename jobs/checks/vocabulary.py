"""Words that no dictionary has: a long text with many of them is gibberish."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING
from unicodedata import normalize

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import sentences

if TYPE_CHECKING:
    from simplemma import Lemmatizer
    from simplemma.strategies import DictionaryLookupStrategy
    from simplemma.strategies.dictionaries import StreamDictionaryFactory

_MIN_WORDS = 25  # in small letters, of four letters or more
_MAX_UNKNOWN = 0.25  # of them
_WORD = re.compile(r"(?<![\w@#/.'’-])[^\W\d_]{4,}(?![\w@/'’-]|\.\w)")
# Languages with a large enough word list in simplemma, and without free compounding.
_LISTED = frozenset(
    ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "pl", "cs", "sk", "ru", "uk", "ro", "el", "ca")
)
LEMMATIZED = _LISTED - {"da", "nb"} | {"tr", "fi", "hu"}  # languages whose inflected words are looked up
WITH_WORDS = _LISTED | LEMMATIZED  # languages whose words can be looked up
_COMPOUNDING = frozenset({"de", "nl", "sv", "da", "nb"})
_MIN_PART = 3  # letters of a part of a compound


def unknown_words(text: str, original: str, locale: str) -> Rejection | None:
    """Reject a text of 25 longer words or more if a quarter of them, names and words of its original aside, are in no
    dictionary.

    Needs the word lists of `simplemma`; without them, every text passes.
    """
    if (language := listed(locale)) is None:
        return None
    theirs = {word.casefold() for word in _WORD.findall(original)}
    found = [word for sentence in sentences(text, locale) for word in _WORD.findall(sentence) if word.islower()]
    own = [word for word in found if word not in theirs]
    if len(own) < _MIN_WORDS:
        return None
    unknown = [word for word in own if not is_known(word, language)]
    if len(unknown) < _MAX_UNKNOWN * len(own):
        return None
    detail = f"{len(unknown)} of {len(own)} words are in no dictionary: {', '.join(dict.fromkeys(unknown))}"
    return Rejection(RejectionReason.UNKNOWN_WORDS, detail)


def listed(locale: str) -> str | None:
    """The language of a locale, if simplemma is installed and its dictionary is large enough."""
    language = {"no": "nb"}.get(primary(locale), primary(locale))
    return language if language in _LISTED and has_word_lists() else None


@cache
def has_word_lists() -> bool:
    """Whether `simplemma`, which has the word lists, is installed."""
    return find_spec("simplemma") is not None


@lru_cache(maxsize=65_536)
def is_known(word: str, language: str) -> bool:
    """Whether a dictionary of a language has a word, or both parts of it where words are made of several."""
    if _is_listed(word, language):
        return True
    if language not in _COMPOUNDING:
        return False
    parts = ((word[:end], word[end:]) for end in range(_MIN_PART, len(word) - _MIN_PART + 1))
    return any(_is_listed(first.removesuffix("s"), language) and _is_listed(last, language) for first, last in parts)


@lru_cache(maxsize=65_536)
def lemma(word: str, language: str) -> str:
    """The dictionary form of a word, or the word itself. Needs the word lists."""
    return _lemmatizer().lemmatize(word, language)


def _is_listed(word: str, language: str) -> bool:
    return _lookup().get_lemma(normalize("NFC", word), language) is not None


@cache
def _lookup() -> DictionaryLookupStrategy:
    from simplemma.strategies import DictionaryLookupStrategy  # noqa: PLC0415  150 ms

    return DictionaryLookupStrategy(_dictionaries())


@cache
def _lemmatizer() -> Lemmatizer:
    from simplemma import Lemmatizer  # noqa: PLC0415  as above
    from simplemma.strategies import DefaultStrategy  # noqa: PLC0415

    return Lemmatizer(lemmatization_strategy=DefaultStrategy(dictionary_factory=_dictionaries()))


@cache
def _dictionaries() -> StreamDictionaryFactory:
    """A factory that keeps all languages, 2 to 33 MB each; simplemma's own keeps eight and rebuilds the others."""
    from simplemma.strategies.dictionaries import StreamDictionaryFactory  # noqa: PLC0415  as above

    return StreamDictionaryFactory(cache_max_size=len(WITH_WORDS))
