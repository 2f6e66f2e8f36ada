"""Texts about the wrong subject: not their source's, not their topic, or their own instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.numbers import primary
from thothy_ai.jobs.checks.segments import beginnings, is_spaced, runs, scaled, words
from thothy_ai.jobs.text import language as detect

_MIN_WORD, _PREFIX = 5, 5  # characters; inflected forms of a word have a beginning in common
_STEM = 4  # characters of words that say what a topic is
_MIN_DENSE = 3  # characters of a word in scripts whose words are short
_DENSE = re.compile("[\u0590-\u06ff\u0900-\u0d7f\uac00-\ud7a3]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_ARTICLE = re.compile("^[\u0648\u0641\u0628\u0644\u0643]?\u0627\u0644(?=.{3})")
_MIN_UNSPACED = 2  # characters of a Chinese, Japanese or Thai word
_MIN_ASKED = 3  # topic words that the source must have, since a heading can use other words than its section
_FEW, _SHARED = 8, 2  # a text with few longer words passes if it shares two, compared by shorter beginnings
_ECHO = 8  # words
# Words for what to do with a topic, rather than for the topic.
_GENERIC = re.compile(
    r"what|which|where|when|whose|while|about|their|there|these|those|chang\w*|happen\w*|explain\w*|topic|section|report|reasons?|"
    r"future|outlook|overview|introduction|summary|conclusion|background|impact|trends?|development\w*|situation|"
    r"warum|welche\w*|wohin|entwicklung\w*|ausblick|überblick|hintergr\w*|änder\w*|veränder\w*|pourquoi|comment|quels?|quelles?|"
    r"któr\w*|jak(?:i|a|ie|ich)|dlaczego|котор\w*|як(?:ий|а|е|і|их)|чому|"
    r"cómo|porqué|cuáles|perché|quali|porque|quais|waarom|почему|какие|что|如何|为什么|為什麼|什么|什麼|なぜ|どの|なに"
)


def off_topic(
    text: str, source: str, locale: str, min_share: float, topic: str | None = None, evidence: str = ""
) -> Rejection | None:
    """Reject a text if too small a share of its longer words (compared by their beginnings) is in the source.

    With a topic, also reject a text if neither it nor its evidence has any word of the topic, although the source has
    three or more. Passes if the source is in another language than the locale.
    """
    if detect.language(source) not in {None, primary(locale)}:
        return None
    mine, theirs = _content(text, locale), _content(source, locale)
    asked = {word for word in _content(topic or "", locale) if not _GENERIC.fullmatch(word)}
    said = _stems(mine | _content(evidence, locale))
    if len(asked & theirs) >= _MIN_ASKED and not _stems(asked) & said:
        return Rejection(RejectionReason.OFF_TOPIC, f"says nothing of its topic: {', '.join(sorted(asked & theirs))}")
    share = len(mine & (theirs | asked)) / max(len(mine), 1)
    if not mine or share >= min_share:
        return None
    if len(mine) <= _FEW:  # two words that begin like words of the source suffice, in other scripts two pairs
        shared = beginnings(text, locale) & beginnings(source, locale)
        if sum(not each.isdigit() for each in shared) >= _SHARED:
            return None
    return Rejection(RejectionReason.OFF_TOPIC, f"only {share:.0%} of its longer words are in the source")


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _content(text: str, locale: str) -> frozenset[str]:
    """The beginnings of a text's longer words, without the article of Arabic and Hebrew."""
    found = set()
    for word in (_ARTICLE.sub("", word) for word in words(text, locale) if not word.isdigit()):
        least = _MIN_DENSE if _DENSE.match(word) else _MIN_WORD
        if len(word) >= (least if word and is_spaced(word[0]) else _MIN_UNSPACED):
            found.add(word[: _MIN_UNSPACED if _HANGUL.match(word) else _PREFIX])
    return frozenset(found)


def _stems(found: Iterable[str]) -> set[str]:
    return {word[:_STEM] for word in found}


def echo(text: str, instruction: str) -> Rejection | None:
    """Reject a text that repeats eight consecutive words of the instruction, or all of it."""
    asked = words(instruction)
    length = min(scaled(_ECHO, detect.language(instruction) or "en"), max(len(asked), 1))
    known = set(runs(asked, length))
    found = next((run for run in runs(words(text), length) if run in known), None)
    return Rejection(RejectionReason.PROMPT_ECHO, f"repeats the instruction: {' '.join(found)!r}") if found else None
