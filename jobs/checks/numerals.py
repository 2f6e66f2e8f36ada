"""Scale words, numbers in words, shares, and numerals in Chinese characters and Hangul."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache

from thothy_ai.jobs.checks.patterns import may_match
from thothy_ai.jobs.checks.tables import table

WITH_LIBRARY = frozenset({"de", "en", "es", "fr", "it", "nl", "pt"})  # languages whose numbers text2num knows
# Scale words that are other words, too: a number before one of them may also be meant without it.
AMBIGUOUS_SCALES = frozenset({"m", "b", "k", "mil", "md", "mii", "mie", "bin", "mille", "tn", "mn", "cientos"})
_LONG_SCALE = frozenset(  # languages in which a billion is a million millions
    {"de", "fr", "da", "nb", "nn", "no", "pl", "cs", "sk", "sl", "hr", "bs", "fi", "hu", "it", "ca", "af", "is"}
)
_VALUES = [*range(13), *range(20, 101, 10)]  # of the words in the table "spelled"
_DIGITS = ("〇零○", "一壹", "二两兩贰", "三叁", "四", "五", "六", "七", "八", "九")
_CJK_DIGITS = {char: value for value, chars in enumerate(_DIGITS) for char in chars}
_CJK_UNITS = {"十": 10, "百": 100, "千": 1000, "십": 10, "백": 100, "천": 1000}
_CJK_GROUPS = {"万": 10**4, "萬": 10**4, "만": 10**4, "億": 10**8, "亿": 10**8, "억": 10**8, "兆": 10**12, "조": 10**12}
CJK_DIGITS, CJK_UNITS = "".join(_CJK_DIGITS), "".join([*_CJK_UNITS, *_CJK_GROUPS])


@cache
def scale_pattern(language: str) -> re.Pattern[str]:
    """The pattern of a language's scale words, which multiply the number before them. Its groups name powers of ten:
    "s6".
    """
    billion, trillion = (12, 18) if language in _LONG_SCALE else (9, 12)
    words = {int(power): [pattern] for power, pattern in table("numerals")["scales"].items()}
    words.setdefault(billion, []).append(r"billi?on\w*|bilion\w*")
    words.setdefault(trillion, []).append(r"trilli?on\w*")
    if language == "en":
        words[6].append("m")
        words[9].append("b")
    if language == "tr":
        words[3].append("bin")
    groups = "|".join(f"(?P<s{power}>{'|'.join(patterns)})" for power, patterns in sorted(words.items(), reverse=True))
    alternatives = "|".join(pattern for patterns in words.values() for pattern in patterns)
    initials = "".join(sorted(set(re.findall(r"(?:^|\|)(.)", alternatives))))
    # First characters are there for speed: `re` tries one alternative after the other. Each must begin with a letter.
    return re.compile(rf"[\s\u00a0-]?(?=[{initials}])(?:{groups})(?![^\W\d_])", re.IGNORECASE)


@cache
def half_pattern() -> re.Pattern[str]:
    """The pattern of words that add a half to the number before them, or before its unit."""
    return re.compile(table("numerals")["words"]["and_a_half"], re.IGNORECASE)


@cache
def spelled(language: str) -> tuple[tuple[str, int], ...]:
    """The beginnings of a language's words for numbers, longest first, and their values; empty if there is no table."""
    tables, language = table("numerals"), "nb" if language in {"no", "nn"} else language
    entries = tables["spelled"].get(language, "").split()
    numbered = [
        *zip(entries, _VALUES, strict=False),
        *zip(tables["teens"].get(language, "").split(), range(13, 20), strict=False),
    ]
    numbered += [(word, int(value)) for value, word in tables["single"].get(language, {}).items()]
    pairs = [(form, value) for entry, value in numbered for form in entry.split("/")]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def can_spell(language: str) -> bool:
    """Whether numbers in words are known in a language."""
    return language in WITH_LIBRARY or bool(spelled(language))


SPACED_LETTER = r"[^\W\d_\u0e00-\u0eff\u3000-\u9fff\uac00-\ud7a3]"  # letters of scripts that divide words by spaces


_ARABIC_PREFIX = r"(?:[وفبلك]{0,2}(?:ال|ل)?)"


@cache
def as_words(pattern: str) -> re.Pattern[str]:
    """A pattern of words; in scripts without spaces, of any characters."""
    return re.compile(rf"(?<!{SPACED_LETTER}){_ARABIC_PREFIX}(?:{pattern})(?!{SPACED_LETTER})", re.IGNORECASE)


def has_words(pattern: str, text: str) -> bool:
    """Whether `as_words` finds a pattern in a text. Most texts lack most words, and are screened first."""
    return may_match(_bordered(pattern), text) and as_words(pattern).search(text) is not None


@cache
def _bordered(pattern: str) -> str:
    """A looser form of `as_words`: only letters of ASCII end a word."""
    return f"(?:^|[^a-z]){_ARABIC_PREFIX}(?:{pattern})(?:$|[^a-z])"


def shares(text: str) -> set[Decimal]:
    """The numbers that "half", "doubled" and their like may become in digits, in any language."""
    entries = table("numerals")["shares"]
    found = _named(tuple(entry["words"] for entry in entries), text)
    return {Decimal(digits) for place in found for digits in entries[place]["digits"]}


def _worded(name: str, text: str) -> list[int]:
    """The numbers of a table ("fractions", "multiples", "ordinals") whose words are in a text."""
    numbers, words = zip(*table("numerals")[name].items(), strict=True)
    return [int(numbers[place]) for place in _named(words, text)]


def _named(words: tuple[str, ...], text: str) -> list[int]:
    """The indexes of the word patterns that a text has."""
    return [place for place, each in enumerate(words) if has_words(each, text)]


_CJK_FRACTION = re.compile(
    r"(\d{1,3}|[一二两三四五六七八九十]{1,3})\s?(?:分之|分の|분의)\s?(\d{1,3}|[一二两三四五六七八九十]{1,3})"
)
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})\s?[/⁄]\s?(\d{1,2})(?![\d/])")
_MANY_PARTS = 8  # fractions from here on mean one part: a tenth; a fifth can mean several


def fractions(text: str) -> list[tuple[Decimal, Decimal]]:
    """The fractions of a text, such as "two fifths", 五分之二 and 3/4, as parts and wholes; parts may be guesses."""
    found = [
        (part, number)
        for number in _worded("fractions", text)
        for part in (range(1, number) if number < _MANY_PARTS else (1, number - 1))
    ]
    found += [(int(part), int(whole)) for part, whole in _SLASHED.findall(text)]
    for whole, part in _CJK_FRACTION.findall(text):
        values = [Decimal(each) if each.isdigit() else cjk_value(each) for each in (part, whole)]
        found.append((int(values[0] or 0), int(values[1] or 0)))
    return [(Decimal(part), Decimal(whole)) for part, whole in found]


def multiples(text: str) -> list[Decimal]:
    """The multiples that a text has in words, in any language: 2 for "twice"."""
    return list(map(Decimal, _worded("multiples", text)))


def ordinals(text: str) -> set[Decimal]:
    """The numbers of the ordinals that a text has in words, in any language: 2 for "second"."""
    return set(map(Decimal, _worded("ordinals", text)))


_PARTS_OF_SCALE = {
    "0.25": "quarter", "0.5": "half", "0.75": "three_quarters", "1.5": "one_and_a_half", "2.5": "two_and_a_half",
}  # fmt: skip


def scales(text: str, language: str) -> set[Decimal]:
    """The values of scale words without a number: a million, and half a million."""
    found = set()
    for match in scale_pattern(language).finditer(text):
        factor = Decimal(10) ** int(str(match.lastgroup)[1:])
        before = text[max(0, match.start() - 16) : match.start()]
        found.add(factor)
        for part, name in _PARTS_OF_SCALE.items():
            ending = rf"(?:{table('numerals')['parts_of_scales'][name]})(?:[\s'’-]\w{{1,3}})?[\s'’-]?$"
            if re.search(ending, before, re.IGNORECASE):
                found.add(factor * Decimal(part))
    return found


def cjk_value(numeral: str) -> Decimal | None:
    """The value of a numeral in Chinese characters or Hangul, with digits of any kind: 二十一万, 21.2万, 3억 5천만."""
    parts = re.findall(r"[\d.]+|.", re.sub(r"[,\s]", "", numeral))
    if all(part in _CJK_DIGITS for part in parts):
        return Decimal("".join(str(_CJK_DIGITS[part]) for part in parts) or "0")
    total = section = Decimal(0)
    digit: Decimal | None = None
    for part in parts:
        if part in _CJK_UNITS:
            section, digit = section + (Decimal(1) if digit is None else digit) * _CJK_UNITS[part], None
        elif part in _CJK_GROUPS:
            total, section, digit = total + (section + (digit or 0) or 1) * _CJK_GROUPS[part], Decimal(0), None
        elif part in _CJK_DIGITS:
            digit = Decimal(_CJK_DIGITS[part])
        elif re.fullmatch(r"\d+(?:\.\d+)?", part, re.ASCII):
            digit = Decimal(part)
        else:
            return None
    return total + section + (digit or 0)
