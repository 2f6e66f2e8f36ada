"""Numbers in words as digits: by text2num, by CLDR's rules for words (ICU), and by tables of inflected forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.tables import table

_WORD = re.compile(r"[^\s\d.,;:!?()\"“”„«»।،؟—–#/-]+")  # by the characters that end a word: \w lacks vowel signs
_SENTENCE_BREAK = re.compile(r"((?<=[.!?])\s+|\n\s*\n)")
_UNSPACED = frozenset({"zh", "ja"})
_PREFIXES = {"ar": "وفبلك", "he": "ובלהכ"}
_EINHALB = re.compile(r"(?<=[a-zäöüß]{4})einhalb(?=e?\b)")
_GAP = 1  # characters between the words of a number
_INVISIBLE = str.maketrans("’ʼ", "''", "\xad\u200b\u2060")


@lru_cache(maxsize=64)  # a text is compared in several ways
def in_digits(text: str, language: str) -> str:
    """The text with its numbers in words as digits, in the languages whose words are known."""
    if "einhalb" in text:
        text = _EINHALB.sub(" einhalb", text)
    for value, halves in table("numerals")["halves"].items():
        if numerals.has_words(halves, text):
            text = numerals.as_words(halves).sub(value, text)
    if language in numerals.WITH_LIBRARY:
        from text_to_num import alpha2digit  # noqa: PLC0415  2 ms that only validators need

        sentences = _SENTENCE_BREAK.split(text)  # the library's time is quadratic in the length
        return "".join(alpha2digit(each, language, threshold=0) for each in sentences)
    if language in _UNSPACED:

        def digits(match: re.Match[str]) -> str:
            has_digit = any(char in numerals.CJK_DIGITS or char in "十百千" for char in match[0])
            value = numerals.cjk_value(match[0]) if has_digit else None
            return f"{value:f}" if value is not None else match[0]

        return _CJK.sub(digits, text)
    parts, last = [], 0
    for number in _numbers(text, language):
        parts += [text[last : number.start], str(number.value)]
        last = number.end
    return "".join([*parts, text[last:]])


_CJK = re.compile(f"[{numerals.CJK_DIGITS}{numerals.CJK_UNITS}]{{1,20}}")


@dataclass
class _Number:
    start: int
    end: int
    value: int

    def add(self, value: int, sign: str) -> bool:
        """Go on with another word, if the two make one number. `sign` says that the word multiplies or is a teen."""
        tens = self.value % 100
        hundreds = self.value >= 100 and tens == 0
        is_digit = value < 10 and ((tens >= 10 and tens % 10 == 0) or (hundreds and value > 0))
        is_tens = 10 <= value < 100 and (hundreds or 0 < self.value < 10)
        if sign == "*" and 0 < self.value % value < 10:
            small = self.value % 10
            self.value += small * value - small
        elif sign == "+" and self.value % 10 > 0 and tens < 10:
            self.value += value
        elif not sign and value == 100 and 1 < self.value < 100:
            self.value *= 100
        elif not sign and (is_digit or is_tens):
            self.value += value
        else:
            return False
        return True


def _numbers(text: str, language: str) -> Iterator[_Number]:
    number: _Number | None = None
    joining = table("numerals")["joining"].get(language, "").split()
    joined = 0  # the end of a joining word, such as "and", behind a number
    for match in _WORD.finditer(text):
        word = match[0].translate(_INVISIBLE).casefold()
        value, sign = _value(word, language)
        if number and match.start() - max(number.end, joined) > _GAP:
            yield number
            number = None
        if value is None:
            if number and word in joining and not joined:
                joined = match.end()
                continue
            if number:
                yield number
            number, joined = None, 0
            continue
        if number and number.add(value, sign):
            number.end = match.end()
        else:
            if number:
                yield number
            number = None if sign else _Number(match.start(), match.end(), value)
        joined = 0
    if number:
        yield number


@lru_cache(maxsize=8192)
def _value(word: str, language: str) -> tuple[int | None, str]:
    """The value of a number word, and whether it multiplies the word before it ("*") or makes it a teen ("+")."""
    if sign := table("numerals")["composed"].get(language, {}).get(word):
        return int(sign[1:]), sign[0]
    if word in table("numerals")["no_numbers"].get(language, "").split():
        return None, ""
    if language == "ko" and (native := _KOREAN.fullmatch(word)):
        return sum(_KOREAN_VALUES[part] for part in native.groups() if part), ""
    exact = _exact(language)
    forms = [word]
    if language in _PREFIXES:  # a preposition or article may be written with the word
        bare = word[1:] if word[:1] in _PREFIXES[language] else word
        forms += [bare, bare.removeprefix("ال")]
    for form in dict.fromkeys(forms):
        if form in exact:
            return exact[form], ""
        for stem, value in numerals.spelled(language):
            ending = 4 if value > 2 else 2
            if form == stem or (len(stem) >= 4 and form.startswith(stem) and len(form) <= len(stem) + ending):
                return value, ""
    return None, ""


_KOREAN_VALUES = (
    dict(zip(["열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔"], range(10, 100, 10), strict=True))
    | dict(zip(["하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉"], range(1, 10), strict=True))
    | dict(zip(["한", "두", "세", "네"], range(1, 5), strict=True))
)
_KOREAN = re.compile(
    "(열|스물|서른|마흔|쉰|예순|일흔|여든|아흔)(하나|둘|셋|넷|다섯|여섯|일곱|여덟|아홉|한|두|세|네)?"
    "(?:이|가|을|를|은|는|도|의|에|로|으로|살|명|개|번|시|곳|여|째|대|만)?"
)


@cache
def _exact(language: str) -> dict[str, int]:
    """The numbers that are one word by CLDR's rules; empty if it has none for the language."""
    from icu4py.messageformat import MessageFormat  # noqa: PLC0415  as in segments

    def spelled(number: int, locale: str) -> str:
        words: str = MessageFormat("{number, spellout}", locale).format({"number": number})
        return words.translate(_INVISIBLE).casefold()

    if language == "ko" or (language != "en" and spelled(7, language) == spelled(7, "en")):
        return {}
    numbers = (*range(101), *range(200, 1000, 100))
    return {words: number for number in numbers if not re.search(r"\s", words := spelled(number, language))}
