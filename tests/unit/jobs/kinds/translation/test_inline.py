"""Masks: what a translation copies, and how its loss is noticed."""

from __future__ import annotations

import pytest

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.kinds.translation.inline import has_words, masked

COPIED = [
    "`code`",
    "``co`de``",
    "{name}",
    "{{ user.name }}",
    "${total}",
    "{% if x %}",
    "%s",
    "%(count)d",
    "%1$s",
    "{count, plural, one {# item} other {# items}}",
    "<b>",
    "</b>",
    '<a href="https://x.org?a=b">',
    "<br/>",
    "<!-- note -->",
    "<https://x.org>",
    "https://x.org/a_(b)?c=d#e",
    "www.x.org/y",
    "editor@x.org",
    "@account",
    "&nbsp;",
    "[^1]",
    "$E = mc^2$",
    "\\*",
]


@pytest.mark.parametrize("value", COPIED)
def test_what_is_copied_is_masked_and_comes_back(value: str) -> None:
    segment = masked(f"See {value} there.")
    assert segment.text == "See {1} there."
    assert segment.restored("Da {1} sehen.") == f"Da {value} sehen."


@pytest.mark.parametrize(
    "text", ["It costs $5 and $6.", "50% of them", "5 % d", "a < b > c", "**bold** and _more_", "#tag"]
)
def test_what_is_translated_is_not_masked(text: str) -> None:
    assert masked(text).text == text


def test_of_a_link_only_the_target_is_masked() -> None:
    segment = masked('A [red bike](https://x.org/a_(b) "title"), ![its picture](p.png) and [more][ref].')
    assert segment.text == "A [red bike]{1}, ![its picture]{2} and [more]{3}."
    assert segment.values == ('(https://x.org/a_(b) "title")', "(p.png)", "[ref]")


@pytest.mark.parametrize(
    ("translation", "said"),
    [
        ("Sieh hier.", "{1}, which stands for '`a`', is missing"),
        ("Sieh {1} und {1} und {2} hier.", "{1}, which stands for '`a`', is there too often"),
        ("Sieh {1} und {2} und {7} hier.", "{7}, which stands for 'nothing', is there too often"),
    ],
)
def test_a_lost_or_invented_placeholder_is_named(translation: str, said: str) -> None:
    rejection = masked("See `a` and {b} here.").lost(translation)
    assert rejection == Rejection(RejectionReason.PLACEHOLDER_LOST, said)


def test_another_order_and_spaces_in_braces_are_fine() -> None:
    segment = masked("See `a` and {b} here.")
    assert segment.lost("Hier { 2 } und {1}.") is None
    assert segment.restored("Hier { 2 } und {1}.") == "Hier {b} und `a`."


def test_tags_must_not_cross() -> None:
    segment = masked("A <b>bold</b> <i>word</i>.")
    assert segment.lost("Ein {3}{1}fettes{2}{4} Wort.") is None
    rejection = segment.lost("Ein {1}{3}fettes{2} Wort{4}.")
    assert rejection is not None
    assert rejection.detail == "the tag </b> is not where it belongs"


def test_tags_that_cross_in_the_original_are_not_the_translation_s_fault() -> None:
    assert masked("</b> stray").lost("streunt {1}") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12.5 %", False), ("[x](https://x.org)", True), ("https://x.org", False), ("`code` {a}", False), ("字", True)],
)
def test_whether_there_is_anything_to_translate(text: str, expected: bool) -> None:
    assert has_words(text) is expected
