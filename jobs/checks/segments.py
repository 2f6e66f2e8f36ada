"""Words and sentences of a text in any script, by ICU (UAX 29, with dictionaries for Chinese, Japanese and Thai)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

# Languages whose words, as ICU divides them, carry more or less than an English word does.
WORDS_PER_ENGLISH_WORD = {
    "ja": 1.6, "zh": 1.2, "th": 1.1, "vi": 1.3, "ar": 0.8, "he": 0.8,
    "ko": 0.7, "fi": 0.7, "et": 0.75, "tr": 0.75, "az": 0.75, "kk": 0.75, "hu": 0.85, "eu": 0.8, "ka": 0.75,
    "ta": 0.65, "te": 0.65, "zu": 0.65, "xh": 0.65, "pl": 0.85, "ru": 0.85, "uk": 0.85, "cs": 0.85, "lt": 0.8,
}  # fmt: skip
_OPENING = "「『（【《〈“‘«‹„(["
_LEFT_BEHIND = ("「", "『", "（", "《", "【", "〈")
# Abbreviations with a full stop that does not end the sentence. Searched in a sentence's last characters only.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(„“\"'«])(?:[^\W\d_]|(?:[^\W\d_]\. ?){1,4}[^\W\d_]|Dr|Mrs?|Ms|Prof|Sen|Gen|Rep|Gov|Hr|Fr|St|Sta|Ste|Nr"
    r"|núm|[Vv]s|[Cc]a|[Cc]f|[Aa]pprox|[Bb]zw|[Ee]vtl|[Ii]nkl|[Zz]zgl|Abb|Mme|Mlle|Sra?|Dott|Sig|tzv|např|ul|al|Mio|Mrd"
    r"|Bd|Jh|Mt|Ft|Vol|pp?|т|г|гг|им|см|млн|млрд|тыс|руб|e\.g|i\.e)\. ?$"
)
_CONTINUED = re.compile(r"\s*[\w„“«\"'(]")


T = TypeVar("T")
_MAX_SENTENCE = 400  # characters; most sentences have fewer


def _remembered(divide: Callable[[str, str], T]) -> Callable[[str, str], T]:
    """Remembers what texts were divided into: one artifact's checks ask for the same texts again and again.

    Sentences are kept apart from longer texts, which they would soon displace.
    """
    of_sentence, of_text = lru_cache(maxsize=512)(divide), lru_cache(maxsize=32)(divide)
    return lambda text, locale: (of_sentence if len(text) <= _MAX_SENTENCE else of_text)(text, locale)


def words(text: str, locale: str = "en") -> tuple[str, ...]:
    """The words of a text, casefolded. Chinese, Japanese and Thai are divided by dictionary."""
    return _words(text, locale)


@_remembered
def _words(text: str, locale: str) -> tuple[str, ...]:
    from icu4py.breakers import WordBreaker  # noqa: PLC0415  20 ms and 40 MB that only validators need

    found = WordBreaker(text.replace("’", "'"), locale)
    return tuple(part.casefold() for part in found if part.isalnum() or (len(part) > 1 and any(map(str.isalnum, part))))


def sentences(text: str, locale: str = "en") -> tuple[str, ...]:
    """The sentences of a text, stripped. A line break ends a sentence, a common abbreviation does not."""
    return _sentences(text, locale)


@_remembered
def _sentences(text: str, locale: str) -> tuple[str, ...]:
    from icu4py.breakers import SentenceBreaker  # noqa: PLC0415  as above

    # ICU leaves the opening mark of a Chinese or Japanese quotation at the end of the sentence before it.
    broken = list(SentenceBreaker(text, locale))
    bare = [part.rstrip(_OPENING) if part.endswith(_LEFT_BEHIND) else part for part in broken]
    tails = [part[len(kept) :] for part, kept in zip(broken, bare, strict=True)]
    parts: list[str] = []
    for part in map("".join, zip(chain([""], tails), [*bare, ""], strict=True)):
        # ICU divides a sentence after an abbreviation, and after the colon, bracket or quotation in its middle, too.
        before = parts[-1] if parts else "\n"
        abbreviated = _ABBREVIATION.search(before[-16:]) and _CONTINUED.match(part)
        if not before.endswith("\n") and (abbreviated or part.lstrip()[:1].islower()):
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(filter(None, map(str.strip, parts)))


def located(text: str, locale: str = "en") -> list[tuple[int, str]]:
    """The sentences of a text with their positions; the whole text if it has none."""
    parts, at = [], 0
    for part in sentences(text, locale):
        at = max(text.find(part, at), at)
        parts.append((at, part))
        at += len(part)
    return parts or [(0, text)]


def runs(items: Sequence[str], length: int) -> list[tuple[str, ...]]:
    """All runs of `length` consecutive items."""
    return list(zip(*(items[start:] for start in range(length)), strict=False))


def scaled(count: int, locale: str, *, shrink: bool = True) -> int:
    """A number of English words, converted to words of a language: twelve are nineteen in Japanese, as ICU divides it.
    Without `shrink`, the number is never reduced for languages with richer words.
    """
    factor = WORDS_PER_ENGLISH_WORD.get(locale.partition("-")[0], 1)
    return max(1, round(count * (factor if shrink else max(factor, 1))))


class WordIndex:
    """An index from words to the parts of a text that have them, to find the parts that share most with
    another text.
    """

    def __init__(self, parts: Iterable[frozenset[str]]) -> None:
        """`parts` are the words of each."""
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, part in enumerate(parts):
            for word in part:
                self._places[word].append(place)

    def shared(self, words: frozenset[str]) -> Counter[int]:
        """How many of these words each part has, by the part's index; parts without any are left out."""
        return Counter(place for word in words for place in self._places.get(word, ()))

    def weights(self, words: frozenset[str]) -> dict[int, float]:
        """The weights of parts that have some of these words, by the part's index; rare words weigh more."""
        weights: dict[int, float] = defaultdict(float)
        for word in sorted(words):
            places = self._places.get(word, ())
            for place in places:
                weights[place] += 1 / len(places)
        return weights


def is_spaced(char: str) -> bool:
    """Whether a character is of a script that puts spaces between words, so that words have borders."""
    return char.isalnum() and not _UNSPACED.match(char)


_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


_ARTICLE = re.compile("^[وفبلك]{0,2}(?:ال|لل)(?=.{3})")
_DENSE = re.compile("[\u0590-\u06ff\u0900-\u0d7f]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_PREFIX, _PREFIX_OF_DENSE = 5, 3  # characters that inflected forms of a word share
_MIN_STEM = 4


def stem(word: str) -> str:
    """The beginning that the inflected forms of a longer word share; empty for a short one."""
    if word[0].isdigit() or not is_spaced(word[0]):
        return word if len(word) > 1 else ""
    if _HANGUL.match(word):
        return word[:2] if len(word) > 1 else ""
    bare = _ARTICLE.sub("", word)
    if _DENSE.match(bare):
        return bare[: _PREFIX_OF_DENSE + 1] if len(bare) >= _PREFIX_OF_DENSE else ""
    return bare[:_PREFIX] if len(bare) >= _MIN_STEM else ""


def stems(text: str, language: str) -> frozenset[str]:
    """The stems of the longer words of a text, and its numbers of two digits or more."""
    return frozenset(filter(None, map(stem, words(text, language))))


_BEGINNING = 4  # characters of a word that are compared to tell what a sentence is about
_PAIR = re.compile("(?=([\u3400-\u9fff][\u3041-\u30ff\u3400-\u9fff]|[\u30a1-\u30fe]{2}|[\u0e01-\u0e2e]{2}))")


def beginnings(text: str, language: str) -> frozenset[str]:
    """The first characters of stems; in scripts without spaces, all pairs of characters but those of hiragana alone."""
    spaced = {each if each[0].isdigit() else each[:_BEGINNING] for each in stems(text, language) if is_spaced(each[0])}
    return frozenset(spaced).union(match[1] for match in _PAIR.finditer(text))
