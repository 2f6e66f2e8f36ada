"""The supported languages by BCP 47 primary subtag, and the `Locale` type of request fields."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


class Language(NamedTuple):
    """A language: its name in prompts, and its name in lingua."""

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
    """Return the language of a locale such as "de" or "pt-BR". Raises `KeyError` if it is not supported."""
    return LANGUAGES[locale.partition("-")[0].lower()]


def _check_locale(value: str) -> str:
    if value.partition("-")[0].lower() not in LANGUAGES:
        supported = ", ".join(sorted(LANGUAGES))
        raise PydanticCustomError(
            "locale", "is not a supported locale; supported: {supported}", {"supported": supported}
        )
    return value


Locale = Annotated[str, AfterValidator(_check_locale)]
