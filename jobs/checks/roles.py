"""Exchanged roles: "A bought B" where the source has "B bought A".

Only in languages in which the order of words tells who does what, between two names with one verb, and not
where either side may be a passive, or the verb means the same in both directions ("marry", "meet").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from thothy_ai.jobs.checks.segments import beginnings, sentences

_BY_ORDER = frozenset({"en", "fr", "es", "it", "pt", "nl", "sv"})
_CAPITAL = "[A-ZÀ-ÖØ-ÞŒ]"
_NAME = re.compile(rf"(?<!\w){_CAPITAL}[\w'’-]+(?: (?:d[aeo] |van |del? )?{_CAPITAL}[\w'’-]+)*")
_GAP = 60  # characters between two names of one statement
_BORDER = re.compile(r"[.;:!?()–—\d]|(?<!^),")  # a comma may follow the first name at once
_PASSIVE_OR_MUTUAL = re.compile(
    r"(?<!\w)(?:by|with|and|than|like|par|avec|et|que|comme|por|con|y|como|da|dal\w*|e|come|com|pelo?s?|pelas?|door|met|en|dan|av|"
    r"och|än|med|or|ou|o|of)(?!\w)",
    re.IGNORECASE,
)


_BOTH_WAYS = re.compile(
    r"(?<!\w)(?:marr(?:y|ies|ied)|wed(?:s|ded)?|divorc\w+|dat(?:e|es|ed)|met|meets?|play(?:s|ed)?|fac(?:e|es|ed)|fights?|fought|"
    r"join(?:s|ed)?|resembl\w+|equal(?:s|led)?|match(?:es|ed)?|border(?:s|ed)?|adjoin\w*|touch(?:es|ed)?|rival(?:s|led)?|"
    r"épous\w+|affront\w+|rencontr\w+|rejoi\w+|ressembl\w+|jou(?:e|ent|a|é)|jueg\w+|jug\w+|enfrent\w+|encontr\w+|"
    r"cas(?:ó|a|ou)|spos\w+|incontr\w+|gioc\w+|sfid\w+|jog\w+|trouw\w+|ontmoet\w*|spe(?:el|l)\w*|grens\w*|gift\w*|möt\w+|"
    r"träff\w+|gräns\w+|likna\w*)(?!\w)",
    re.IGNORECASE,
)
_NO_ORDER = (_BORDER, _PASSIVE_OR_MUTUAL, _BOTH_WAYS)


@dataclass(frozen=True, slots=True)
class _Statement:
    first: frozenset[str]
    words: frozenset[str]
    second: frozenset[str]
    text: str

    def reverses(self, other: _Statement) -> bool:
        """Whether two statements have the same verb and its names in the other order."""
        return bool(self.words & other.words and self.first & other.second and self.second & other.first)

    def agrees(self, other: _Statement) -> bool:
        """Whether two statements have the same names in the same order."""
        return bool(self.first & other.first and self.second & other.second)


def exchanged_roles(text: str, source: str, language: str) -> str | None:
    """A statement of a text that has the names of one of the source in the other order."""
    if language not in _BY_ORDER:
        return None
    known = _statements(source, language)
    for mine in _statements(text, language):
        if any(mine.reverses(each) for each in known) and not any(mine.agrees(each) for each in known):
            return f"{mine.text!r}: the source has it the other way round"
    return None


@lru_cache(maxsize=32)  # all fields of an artifact are compared with the same source
def _statements(text: str, language: str) -> tuple[_Statement, ...]:
    found = []
    for sentence in sentences(text, language):
        for first, second in pairwise(_NAME.finditer(sentence)):
            between = sentence[first.end() : second.start()]
            if len(between) > _GAP or any(each.search(between) for each in _NO_ORDER):
                continue
            if words := beginnings(between, language):
                subject, object_ = (beginnings(each[0], language) - words for each in (first, second))
                found.append(_Statement(subject, words, object_, sentence[first.start() : second.end()]))
    return tuple(found)
