"""Language detection. Owns the detector, which is loaded on first use.

Uses lingua in low-accuracy mode, i.e. trigrams only, which lingua uses in any mode from 120 characters up. Its models
are shared by all threads, and detection takes no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from thothy_ai.jobs.text.locales import LANGUAGES

if TYPE_CHECKING:
    from lingua import LanguageDetector

MAX_CHARS = 4_000  # at the beginning of a text that are used for detection
MIN_LIKELY = 0.4
_CODES = {language.detector_name: code for code, language in LANGUAGES.items() if code != "no"}


@cache
def _detector() -> LanguageDetector:
    from lingua import Language, LanguageDetectorBuilder  # noqa: PLC0415  a 100 MB library that only validators need

    names = {language.detector_name for language in LANGUAGES.values()}
    languages = [Language.from_str(name) for name in sorted(names)]
    return LanguageDetectorBuilder.from_languages(*languages).with_low_accuracy_mode().build()


def confidences(text: str) -> Mapping[str, float]:
    """The probability of each supported language, by detector name, most likely first, from the text's beginning."""
    return _confidences(text[:MAX_CHARS])


@lru_cache(maxsize=256)  # a check asks for those of the same sentence up to three times
def _confidences(text: str) -> Mapping[str, float]:
    return {each.language.name: each.value for each in _detector().compute_language_confidence_values(text)}


def language(text: str) -> str | None:
    """The most likely language of a text, as a primary subtag; None for a text without letters or a likely language."""
    return _language(text[:MAX_CHARS])


@lru_cache(maxsize=1024)  # checks ask for that of a source again and again, and again when the job's outputs are judged
def _language(text: str) -> str | None:
    found = next(iter(confidences(text).items()), ("", 0.0))
    code = _CODES.get(found[0])
    return code if found[1] >= MIN_LIKELY else None
