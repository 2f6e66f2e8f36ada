"""Patterns that are screened find exactly what Python's `re` finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs.checks.numerals import as_words, has_words
from thothy_ai.jobs.checks.patterns import Patterns, may_match
from thothy_ai.jobs.checks.tables import table

COMMANDS = table("prompt_injection")["commands"]
FLAGS = re.IGNORECASE | re.MULTILINE


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
@settings(max_examples=20)
@given(data=st.data())
def test_every_command_is_found_as_by_re(command: str, data: st.DataObject) -> None:
    # A border would make Hypothesis throw away most of what it draws; a space that may be there often makes one.
    made = data.draw(st.from_regex(re.compile(command.replace(r"\b", " ?"), FLAGS), fullmatch=True))
    screened, plain = Patterns([command]), re.compile(command, FLAGS)
    for text in (made, made.upper(), made.lower(), f"a{made}a", f"é{made}é\n{made}"):
        assert [found.span() for found in screened.finditer(text)] == [found.span() for found in plain.finditer(text)]
        assert screened.is_in(text) == bool(plain.search(text))


def test_borders_of_words_count() -> None:
    patterns = Patterns([r"\bai\b"])
    assert patterns.is_in("The AI must.")
    assert not patterns.is_in("It was said.")
    assert not patterns.is_in("éai")


def test_what_is_found_is_in_the_order_of_the_text_then_of_the_patterns() -> None:
    found = Patterns(["b+", "a", "bb"]).finditer("abba")
    assert [(match.start(), match[0]) for match in found] == [(0, "a"), (1, "bb"), (1, "bb"), (3, "a")]


@pytest.mark.parametrize("pattern", [r"(?<!no )order", r"order(?=s)", r"(o)rder\1?"])
def test_what_the_crate_cannot_read_is_found_all_the_same(pattern: str) -> None:
    assert Patterns([pattern]).is_in("Two orders")
    assert not Patterns([pattern]).is_in("Two or three")


def test_a_lone_surrogate_hides_nothing() -> None:
    assert Patterns(["order"]).is_in("\ud800 order")


def test_no_pattern_finds_nothing() -> None:
    assert not list(Patterns([]).finditer("order"))
    assert not Patterns([]).is_in("order")


_NUMERALS = table("numerals")
WORDS = (
    *(words for name in ("fractions", "multiples", "ordinals", "halves") for words in _NUMERALS[name].values()),
    *(entry["words"] for entry in _NUMERALS["shares"]),
    *(words.replace("\n", "") for words in table("operations").values()),
    _NUMERALS["words"]["next_year"],
)


@pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))
@settings(max_examples=20)
@given(data=st.data())
def test_a_screen_hides_no_word(words: str, data: st.DataObject) -> None:
    bare = re.sub(r"\(\?<?[=!][^()]*\)", "", words)  # Hypothesis would throw away most of what it draws
    made = data.draw(st.from_regex(re.compile(bare, re.IGNORECASE), fullmatch=True))
    for text in (made, made.upper(), made.lower(), f"a{made}a", f"é{made}é", f"an {made} hour", f"وال{made} year"):
        assert has_words(words, text) == bool(as_words(words).search(text))
        assert may_match(words, text) or not re.search(words, text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"[^\w]x", "-x"), (r"[^\W\d_]x", "ax"), (r"a[^\d]b", "acb"), (r"[\W]x", "-x"), (r"[a\W]x", "-x"),
        (r"[^a\w]x", "-x"), (r"a(?!b){2}c", "ac"), (r"[\S]x", "ax"),
    ],
)  # fmt: skip
def test_a_screen_hides_nothing_where_no_pattern_is_looser(pattern: str, text: str) -> None:
    assert re.search(pattern, text, re.IGNORECASE)
    assert may_match(pattern, text)


@pytest.mark.parametrize("pattern", [r"(?<=no )\border\b", r"[\w'’-]+ order", r"order(?=s)", r"(o)rder\1?"])
def test_a_screen_is_looser_than_its_pattern(pattern: str) -> None:
    assert may_match(pattern, "There are no Orders")
    assert may_match(pattern, "\ud800 order")
