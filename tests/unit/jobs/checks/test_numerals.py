"""Words for numbers: shortcuts find what a plain search finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs.checks import numerals
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
