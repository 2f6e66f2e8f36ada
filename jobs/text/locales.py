"""Locales: BCP 47 tags of a language, with a script and a region where they matter, and their names in prompts.

The languages are those that lingua detects, since no other can be validated. Scripts and regions are CLDR's, by Babel.
"""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from babel import Locale as Cldr


class Language(NamedTuple):
    """A language: its name in prompts, and its name in lingua."""

    name: str
    detector_name: str


_NAMES = """af Afrikaans, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca Catalan,
cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es Spanish, et Estonian, eu Basque,
fa Persian, fi Finnish, fr French, ga Irish, gu Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, hy Armenian,
id Indonesian, is Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, ko Korean, la Latin, lg Ganda,
lt Lithuanian, lv Latvian, mi Maori, mk Macedonian, mn Mongolian, mr Marathi, ms Malay, nl Dutch, pa Punjabi, pl Polish,
pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovene, sn Shona, so Somali, sq Albanian, sr Serbian, st Sotho,
sv Swedish, sw Swahili, ta Tamil, te Telugu, th Thai, tl Tagalog, tn Tswana, tr Turkish, ts Tsonga, uk Ukrainian,
ur Urdu, vi Vietnamese, xh Xhosa, yo Yoruba, zh Chinese, zu Zulu"""
_BOKMAL = Language("Norwegian Bokmål", "BOKMAL")
LANGUAGES = {code: Language(name, name.upper()) for code, name in (entry.split() for entry in _NAMES.split(","))} | {
    "nb": _BOKMAL,
    "no": _BOKMAL,
    "nn": Language("Norwegian Nynorsk", "NYNORSK"),
}

_TAG = re.compile(r"(?P<language>[a-z]{2})(?:-(?P<script>[a-z]{4}))?(?:-(?P<region>[a-z]{2}|\d{3}))?", re.IGNORECASE)


class Tag(NamedTuple):
    """The parts of a locale. `script` and `region` are empty where the tag has none."""

    language: str
    script: str
    region: str

    def __str__(self) -> str:
        return "-".join(filter(None, self))


def language_of(locale: str) -> Language:
    """Return the language of a locale such as "de" or "pt-BR". Raises `KeyError` if it is not supported."""
    return LANGUAGES[re.split("[-_]", locale, maxsplit=1)[0].lower()]


def tag_of(locale: str) -> Tag | None:
    """The parts of a locale in their canonical case, for any case and with "_" for "-"; None if it is not supported."""
    found = _TAG.fullmatch(locale.replace("_", "-"))
    if not found or found["language"].lower() not in LANGUAGES:
        return None
    tag = Tag(found["language"].lower(), (found["script"] or "").title(), (found["region"] or "").upper())
    if not (tag.script or tag.region):
        return tag  # without CLDR, which takes time to load
    known = (not tag.script or tag.script in _cldr().scripts) and (not tag.region or tag.region in _cldr().territories)
    return tag if known else None


def locale_name(locale: str) -> str:
    """The name of a locale in English: "Brazilian Portuguese", "Traditional Chinese (Taiwan)", "German (Italy)"."""
    tag = tag_of(locale) or Tag(locale, "", "")
    plain = language_of(tag.language).name
    if not (tag.script or tag.region):
        return plain
    names, script = _cldr().languages, script_of(locale)
    region = f" ({_cldr().territories[tag.region]})" if tag.region else ""
    if name := names.get(f"{tag.language}_{tag.region}"):
        return str(name)
    if name := names.get(f"{tag.language}_{script}"):
        return f"{name}{region}"
    written = (
        f" in {_cldr().scripts[tag.script]} script" if tag.script and tag.script != script_of(tag.language) else ""
    )
    return f"{plain}{region}{written}"


@cache
def script_of(locale: str) -> str:
    """The script that a locale is written in, such as "Latn", "Hans" or "Hant": its own, or the one its region uses."""
    from babel.core import get_global  # noqa: PLC0415  reads a file of 1 MB

    tag = tag_of(locale) or Tag(locale, "", "")
    if tag.script:
        return tag.script
    likely = get_global("likely_subtags")
    full = likely.get(f"{tag.language}_{tag.region}") or likely.get(tag.language) or f"{tag.language}_Latn"
    return str(full).split("_")[1]


@cache
def _cldr() -> Cldr:
    from babel import Locale  # noqa: PLC0415  as above

    return Locale("en")


def _check_locale(value: str) -> str:
    if tag := tag_of(value):
        return str(tag)
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415  as above

    beginning, *rest = re.split("[-_]", value.lower())
    if beginning in LANGUAGES:
        region = _alias("territory_aliases", rest[-1].upper()) if rest else ""
        meant = f"{beginning}-{region}" if region else beginning
    elif not (meant := _alias("language_aliases", beginning)):
        names = {language.name.lower(): code for code, language in LANGUAGES.items() if code != "no"}
        for code in LANGUAGES:  # and by its own name, such as "deutsch"
            with suppress(UnknownLocaleError):
                names[str(Locale(code).get_language_name()).lower()] = code
        near = get_close_matches(beginning, names, n=1, cutoff=0.75)
        meant = names[near[0]] if near else ""
    advice = "name a language such as 'de', with a region or script if it matters, such as 'pt-BR' or 'zh-Hant'"
    advice = f"did you mean {meant!r} ({locale_name(meant)})?" if meant else advice
    raise PydanticCustomError("locale", "is not a supported locale; {advice}", {"advice": advice})


def _alias(table: Literal["language_aliases", "territory_aliases"], code: str) -> str:
    """CLDR's replacement of an old or ISO 639-2 code: "GB" for "UK", "de" for "deu"."""
    from babel.core import get_global  # noqa: PLC0415  as above

    found = get_global(table).get(code, "")
    alias = str(found if isinstance(found, str) else found[0])
    return alias if table == "territory_aliases" or alias in LANGUAGES else ""


Locale = Annotated[str, AfterValidator(_check_locale)]
