"""Words for numbers: one pass over a text finds those that a pass for each would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.jobs.checks import numerals

PATTERNS = ("a", "ab|b", "b[ac]", "c+", "abc|ca b", "b c")


@given(st.text("abc ", max_size=12))
def test_all_words_are_found_at_once(text: str) -> None:
    each = [place for place, words in enumerate(PATTERNS) if numerals.as_words(words).search(text)]
    assert numerals._named(PATTERNS, text) == each
