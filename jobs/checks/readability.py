"""Reading level: whether a text is harder to read than its brief asks for, by LIX.

LIX is the number of words per sentence and the percentage of words of more than six letters (Björnsson, "Läsbarhet",
1968): 30 is light prose, 40 a newspaper, 50 a specialist's report. It says nothing about what the words mean.
"""

from __future__ import annotations

from typing import Final

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import sentences, words

MIN_WORDS: Final = 25  # shorter texts have no level
_LONG_WORD: Final = 7  # letters
_HIGHEST: Final = {"easy": 35, "general": 50}  # LIX of English; experts read anything
_LONGER_WORDS: Final = {  # by how much the LIX of good labelled texts exceeds the English one
    "en": 0, "de": 7, "fr": 7, "it": 7, "es": 4, "pt": 4, "nl": 4, "sv": 4, "da": 4, "nb": 4, "no": 4, "pl": 11,
    "ru": 14,
}  # fmt: skip


def too_hard(text: str, level: str | None, locale: str) -> Rejection | None:
    """Reject a text of 25 words or more that is harder to read than its level; in thirteen languages."""
    language = primary(locale)
    found = [word for word in words(text, locale) if word[0].isalpha()]
    if level not in _HIGHEST or language not in _LONGER_WORDS or len(found) < MIN_WORDS:
        return None
    count, long = len(sentences(text, locale)), sum(len(word) >= _LONG_WORD for word in found)
    lix, highest = len(found) / count + 100 * long / len(found), _HIGHEST[level] + _LONGER_WORDS[language]
    if lix <= highest:
        return None
    detail = (
        f"is hard to read: LIX {lix:.0f}, more than {highest}, by {len(found) / count:.0f} words a sentence and"
        f" {long / len(found):.0%} long ones"
    )
    return Rejection(RejectionReason.READING_LEVEL, detail)
