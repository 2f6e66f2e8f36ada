"""Locales: which tags are supported, their canonical form, their names in prompts, their scripts."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from thothy_ai.jobs.text.locales import LANGUAGES, Locale, language_of, locale_name, script_of, tag_of

ADAPTER: TypeAdapter[str] = TypeAdapter(Locale)


def test_the_languages_are_those_that_lingua_detects() -> None:
    from lingua import Language

    assert {language.detector_name for language in LANGUAGES.values()} == {language.name for language in Language.all()}


@pytest.mark.parametrize(
    ("locale", "name"),
    [
        ("de", "German"),
        ("pt-BR", "Brazilian Portuguese"),
        ("pt-PT", "European Portuguese"),
        ("en-GB", "British English"),
        ("de-AT", "Austrian German"),
        ("de-IT", "German (Italy)"),
        ("zh", "Chinese"),
        ("zh-TW", "Traditional Chinese (Taiwan)"),
        ("zh-Hant", "Traditional Chinese"),
        ("zh-CN", "Simplified Chinese (China)"),
        ("sr-Latn", "Serbian in Latin script"),
        ("es-419", "Latin American Spanish"),
        ("no", "Norwegian Bokmål"),
        ("sn", "Shona"),
    ],
)
def test_name(locale: str, name: str) -> None:
    assert locale_name(locale) == name


@pytest.mark.parametrize("locale", LANGUAGES)
def test_every_language_has_a_name_and_a_script(locale: str) -> None:
    assert locale_name(locale) == language_of(locale).name
    assert re.fullmatch("[A-Z][a-z]{3}", script_of(locale))


@pytest.mark.parametrize(
    ("locale", "script"), [("zh", "Hans"), ("zh-TW", "Hant"), ("zh-HK", "Hant"), ("sr-Latn-RS", "Latn"), ("ar", "Arab")]
)
def test_script(locale: str, script: str) -> None:
    assert script_of(locale) == script


@pytest.mark.parametrize(
    ("given", "canonical"), [("de", "de"), ("PT_br", "pt-BR"), ("ZH-hant-tw", "zh-Hant-TW"), ("es-419", "es-419")]
)
def test_canonical_case(given: str, canonical: str) -> None:
    assert ADAPTER.validate_python(given) == canonical


@pytest.mark.parametrize(
    ("locale", "advice"),
    [
        ("german", "did you mean 'de' (German)?"),
        ("portugese", "did you mean 'pt' (Portuguese)?"),
        ("deutsch", "did you mean 'de' (German)?"),
        ("deu", "did you mean 'de' (German)?"),
        ("iw", "did you mean 'he' (Hebrew)?"),
        ("en-UK", "did you mean 'en-GB' (British English)?"),
        ("de-Germany", "did you mean 'de' (German)?"),
        ("de-QX", "did you mean 'de' (German)?"),
        ("zh-Xxxx", "did you mean 'zh' (Chinese)?"),
        ("klingon", "name a language such as 'de'"),
        ("", "name a language such as 'de'"),
        ("-", "name a language such as 'de'"),
        ("日本語", "did you mean 'ja' (Japanese)?"),
    ],
)
def test_an_unknown_locale_is_refused_with_a_suggestion(locale: str, advice: str) -> None:
    assert tag_of(locale) is None
    with pytest.raises(ValidationError, match="is not a supported locale") as raised:
        ADAPTER.validate_python(locale)
    assert advice in str(raised.value)
