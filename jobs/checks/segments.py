"""Words and sentences of a text in any script, by ICU (UAX 29, with dictionaries for Chinese, Japanese and Thai)."""

from __future__ import annotations

import re
from itertools import chain, pairwise

_OPENING = "「『（【《〈“‘«‹„([\"'"
_ABBREVIATION = re.compile(
    r"(?:^|[\s(„“\"'«])(?:\w|(?:\w\.\s?)+\w|Dr|Mrs?|Ms|Prof|Sen|Gen|Rep|Gov|Hr|Fr|St|Sta|No|Nr|n|núm|vs|ca|approx|bzw|usw|Abb|Inc|Ltd"
    r"|Co|Corp|Jr|Sr|M|Mme|Mlle|Sra?|Dott|Sig|tzv|např|ul|al|Mio|Mrd|Bd|Jh|Mt|Ft|Vol|pp?)\.\s*$"
)


def words(text: str, locale: str = "en") -> list[str]:
    """The words of a text, casefolded. Chinese, Japanese and Thai are divided by dictionary."""
    from icu4py.breakers import WordBreaker  # noqa: PLC0415  20 ms and 40 MB that only validators need

    return [part.casefold() for part in WordBreaker(text, locale) if any(map(str.isalnum, part))]


def sentences(text: str, locale: str = "en") -> list[str]:
    """The sentences of a text, stripped. A line break ends a sentence, a common abbreviation does not."""
    from icu4py.breakers import SentenceBreaker  # noqa: PLC0415  as above

    parts: list[str] = []
    for part in SentenceBreaker(text, locale):
        if parts and _ABBREVIATION.search(parts[-1]) and "\n" not in parts[-1]:
            parts[-1] += part
        else:
            parts.append(part)
    return [part for part in map(str.strip, _moved_openings(parts)) if part]


def _moved_openings(parts: list[str]) -> list[str]:
    """ICU leaves the opening mark of a quotation at the end of the sentence before it."""
    bare = [part.rstrip(_OPENING) if part.endswith(("「", "『", "（", "《")) else part for part in parts]
    tails = [part[len(kept) :] for part, kept in zip(parts, bare, strict=True)]
    return list(map("".join, zip(chain([""], tails), [*bare, ""], strict=True)))


def runs(items: list[str], length: int) -> list[tuple[str, ...]]:
    """All runs of `length` consecutive items."""
    return list(zip(*(items[start:] for start in range(length)), strict=False))


def adjacent(items: list[str]) -> list[tuple[str, str]]:
    """All pairs of neighbours."""
    return list(pairwise(items))
