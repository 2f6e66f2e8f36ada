"""Which language a text is in. Owns the detector, which loads at its first use.

lingua in its low-accuracy mode: trigrams only, which is what it uses anyway from 120 characters on. Its models are
shared by all threads, and detection takes no lock.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from thothy_ai.jobs.locales import LANGUAGES, language_of

if TYPE_CHECKING:
    from lingua import LanguageDetector


@cache
def _detector() -> LanguageDetector:
    from lingua import Language, LanguageDetectorBuilder  # noqa: PLC0415  a 100 MB library, for judges only

    names = {language.detector_name for language in LANGUAGES.values()}
    languages = [Language.from_str(name) for name in sorted(names)]
    return LanguageDetectorBuilder.from_languages(*languages).with_low_accuracy_mode().build()


def confidences(text: str) -> dict[str, float]:
    """Probability of each known language, by the detector's name; likeliest first."""
    return {found.language.name: found.value for found in _detector().compute_language_confidence_values(text)}


def is_in(text: str, locale: str, least: float = 0.2) -> bool:
    """Whether a text is plausibly in a locale's language: the likeliest one, or at least this probable.

    Close relatives (Danish and Norwegian) share the probability of a short text, hence not only the likeliest.
    """
    wanted = language_of(locale).detector_name
    found = confidences(text)
    return next(iter(found)) == wanted or found[wanted] >= least
