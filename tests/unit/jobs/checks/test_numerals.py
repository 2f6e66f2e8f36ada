"""Words for numbers: shortcuts find what a plain search finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs.checks import numerals
from thothy_ai.jobs.checks.spellout import in_digits
from thothy_ai.jobs.checks.tables import table

PATTERNS = ("a", "ab|b", "b[ac]", "c+", "abc|ca b", "b c")


@given(st.text("abc ", max_size=12))
def test_all_words_are_found(text: str) -> None:
    each = [place for place, words in enumerate(PATTERNS) if numerals.as_words(words).search(text)]
    assert numerals._named(PATTERNS, text) == each


SCALES = table("numerals")["scales"]


@pytest.mark.parametrize("power", SCALES)
@settings(max_examples=50)
@given(data=st.data())
def test_every_scale_word_is_found(power: str, data: st.DataObject) -> None:
    word = data.draw(st.from_regex(re.compile(SCALES[power], re.IGNORECASE), fullmatch=True))
    pattern = numerals.scale_pattern("de")
    for text in (word, f" {word}", f"-{word}.", word.upper(), word.lower()):
        plain = pattern.pattern.replace(re.findall(r"\(\?=\[[^]]*\]\)", pattern.pattern)[0], "", 1)
        found = [match.span() for match in pattern.finditer(text)]
        assert found == [match.span() for match in re.finditer(plain, text, re.IGNORECASE)]
        assert found


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "It takes half an hour.", "It takes 0.5 hour."), ("en", "a half hour", "a 0.5 hour"),
        ("de", "eine halbe Stunde", "eine 0.5 Stunde"), ("de", "das halbe Jahr", "das 0.5 Jahr"),
        ("fr", "la demi-heure", "la 0.5 -heure"), ("es", "dura media hora", "dura 0.5 hora"),
        ("pl", "pół godziny", "0.5 godziny"), ("nl", "dit half uur", "dit 0.5 uur"), ("hu", "fél óra", "0.5 óra"),
        ("ar", "نصف ساعة", "0.5 ساعة"), ("hi", "आधा घंटा", "0.5 घंटा"), ("zh", "半小时", "0.5 小时"),
    ],
)  # fmt: skip
def test_half_of_a_unit_is_a_number(language: str, text: str, expected: str) -> None:
    assert " ".join(in_digits(text, language).split()) == expected


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "two and a half hours"), ("de", "zwei und eine halbe Stunde"),
        ("de", "zwei und ein halbes Jahr"), ("fr", "trois jours et une demi-journée"), ("es", "dos horas y media hora"),
        ("pl", "dwie i pół godziny"), ("cs", "dva a půl hodiny"), ("nl", "twee en een half uur"),
        ("sv", "två och en halv timme"), ("fi", "kaksi ja puoli tuntia"), ("hu", "két és fél óra"),
        ("ar", "ساعتين ونصف ساعة"), ("en", "half of the hours"),
    ],
)  # fmt: skip
def test_a_half_that_belongs_to_another_number_is_not(language: str, text: str) -> None:
    assert "0.5" not in in_digits(text, language)
