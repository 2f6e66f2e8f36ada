"""Phrases that a producer has banned."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.segments import is_spaced

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufe0f]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "‐": "-", "‑": "-", "–": "-", "—": "-"})


def banned(text: str, phrases: Iterable[str]) -> Rejection | None:
    """Reject a text that contains a banned phrase as whole words, in any case and with invisible characters in between.

    A phrase in a script without spaces, such as Chinese, is found anywhere.
    """
    plain = _plain(text)
    for phrase in phrases:
        if _plain(phrase) and _pattern(phrase).search(plain):
            return Rejection(RejectionReason.BANNED_PHRASE, f"contains {phrase!r}")
    return None


def _plain(text: str) -> str:
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).translate(_QUOTES)
    return " ".join(visible.casefold().split())


@lru_cache(maxsize=256)
def _pattern(phrase: str) -> re.Pattern[str]:
    plain = _plain(phrase)
    before = r"(?<!\w)" if is_spaced(plain[0]) else ""
    after = r"(?!\w)" if is_spaced(plain[-1]) else ""
    return re.compile(before + re.escape(plain) + after)
