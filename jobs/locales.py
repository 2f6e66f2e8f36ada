"""The languages we can ask for and check, by BCP 47 primary subtag, and the `Locale` type of requests."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


class Language(NamedTuple):
    """A language as a prompt calls it, and as the detector calls it."""

    name: str
    detector_name: str


_BOKMAL = Language("Norwegian", "BOKMAL")
LANGUAGES = {
    code: Language(name, name.upper())
    for code, name in {
        "cs": "Czech",
        "da": "Danish",
        "de": "German",
        "en": "English",
        "es": "Spanish",
        "fi": "Finnish",
        "fr": "French",
        "it": "Italian",
        "ja": "Japanese",
        "ko": "Korean",
        "nl": "Dutch",
        "pl": "Polish",
        "pt": "Portuguese",
        "sv": "Swedish",
        "tr": "Turkish",
        "uk": "Ukrainian",
        "zh": "Chinese",
    }.items()
} | {"nb": _BOKMAL, "no": _BOKMAL}


def language_of(locale: str) -> Language:
    """Return the language of a locale such as "de" or "pt-BR"; `KeyError` when we don't know it."""
    return LANGUAGES[locale.partition("-")[0].lower()]


def _check_locale(value: str) -> str:
    if value.partition("-")[0].lower() not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise PydanticCustomError("locale", "is no language we can check; there are {known}", {"known": known})
    return value


Locale = Annotated[str, AfterValidator(_check_locale)]
