"""Phrases in another script: models change to Chinese, for example, in the middle of a sentence."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import QUOTATION
from thothy_ai.jobs.text.locales import locale_name, script_of
from thothy_ai.jobs.text.strings import blanked

_MIN_LETTERS = 8  # a Chinese, Japanese or Korean letter counts twice
_CJK = r"\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
_DENSE = re.compile(f"[{_CJK}]")
# Includes IPA, full-width letters and the mathematical alphabets.
_LATIN = r"\u0000-\u02ff\u1d00-\u1dbf\u1e00-\u1eff\u2070-\u214f\u2c60-\u2c7f\ua720-\ua7ff\ufb00-\ufb06\uff21-\uff5a"
_LATIN += r"\U0001d400-\U0001d7ff"
_LETTERS = {  # by script, beside Latin ones
    "Latn": "", "Cyrl": r"\u0400-\u052f\u1c80-\u1c8f", "Grek": r"\u0370-\u03ff\u1f00-\u1fff", "Armn": r"\u0530-\u058f",
    "Hebr": r"\u0590-\u05ff", "Arab": r"\u0600-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff", "Deva": r"\u0900-\u097f",
    "Beng": r"\u0980-\u09ff", "Guru": r"\u0a00-\u0a7f", "Gujr": r"\u0a80-\u0aff", "Taml": r"\u0b80-\u0bff",
    "Telu": r"\u0c00-\u0c7f", "Thai": r"\u0e00-\u0e7f", "Geor": r"\u10a0-\u10ff\u1c90-\u1cbf", "Hans": _CJK,
    "Hant": _CJK, "Jpan": _CJK, "Kore": _CJK,
}  # fmt: skip
_WORD = re.compile(r"[^\s\d.,:;!?…/|()\[\]\"“”«»—–]+")
_BRACKETED = re.compile(r"[(\[（][^()\[\]（）]{1,200}[)\]）]")


def foreign_letters(text: str, given: str, locale: str) -> Rejection | None:
    """Reject a phrase of eight letters or more in a script that is neither Latin nor the locale's. Words that are
    `given`, such as a source's and a producer's, pass, and so do single letters and what is quoted or in brackets.
    """
    if (own := _LETTERS.get(script_of(locale))) is None:
        return None
    for match in _phrases(own).finditer(blanked(_BRACKETED, blanked(QUOTATION, text))):
        new = [word for word in _WORD.findall(match[0]) if word not in _words(given)]
        letters = sum(sum(map(str.isalpha, word)) + len(_DENSE.findall(word)) for word in new if len(word) > 1)
        if letters >= _MIN_LETTERS and match[0] not in given:
            detail = f"expected {locale_name(locale)}, found letters of another script: {match[0][:80]!r}"
            return Rejection(RejectionReason.WRONG_LANGUAGE, detail, match.span())
    return None


@lru_cache(maxsize=8)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


@cache
def _phrases(own: str) -> re.Pattern[str]:
    """Letters of other scripts on a line, with at most four other characters between them, such as vowel signs."""
    letter = rf"[^\W\d_{_LATIN}{own}]"
    return re.compile(rf"{letter}(?:[^\w\n|]{{0,4}}{letter})*")
