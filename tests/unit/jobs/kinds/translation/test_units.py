"""Units: a text is the sum of its parts, and its structure survives whatever stands in a unit's place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs.kinds.translation.units import document_of

MARKDOWN = """---
title: kept as it is
---

# Head *one* #

Underlined
===

A wrapped paragraph that goes on for a while until it has to be wrapped by someone because
it is long, and [a link](https://x.org/z_(a) "t") with `code` in it. And <b>bold</b> {name} %s
ends here.

Roses are red\\
Violets are blue\x20\x20
Sugar

- item one
- [ ] item **two**
  1. nested
  > quote in list

> quoted text that is here
> and there

| a | b\\|c | 12 |
|---|:-:|---|
| x | `y` |  |

```python
code = 1
```

[ref]: http://x.org "y"

<div>
hello
</div>
"""


def units(text: str) -> list[str]:
    return [unit.text for unit in document_of(text).units]


def test_what_is_translated_and_what_is_not() -> None:
    assert units(MARKDOWN) == [
        "Head *one*",
        "Underlined",
        (
            "A wrapped paragraph that goes on for a while until it has to be wrapped by someone because it is long, and"
            ' [a link](https://x.org/z_(a) "t") with `code` in it. And <b>bold</b> {name} %s ends here.'
        ),
        "Roses are red",
        "Violets are blue",
        "Sugar",
        "item one",
        "item **two**",
        "nested",
        "quote in list",
        "quoted text that is here",
        "and there",
        "a",
        "b\\|c",
        "12",
        "x",
        "`y`",
        "<div>",
        "hello",
        "</div>",
    ]


def test_structure_stays_and_a_paragraph_keeps_its_number_of_lines() -> None:
    document = document_of(MARKDOWN)
    text = document.assembled(["Wort" for _ in document.units])
    assert text.startswith("---\ntitle: kept as it is\n---\n\n# Wort #\n\nWort\n===\n")
    for kept in ("Wort\\\nWort  \nWort\n", "- [ ] Wort\n  1. Wort\n  > Wort\n", "> Wort\n> Wort\n", "|---|:-:|---|\n"):
        assert kept in text
    assert "```python\ncode = 1\n```\n\n[ref]: http://x.org" in text
    same = document.assembled([unit.text for unit in document.units])
    assert same.count("\n") == MARKDOWN.count("\n")
    assert " ".join(same.split()) == " ".join(MARKDOWN.split())


LINES = st.lists(
    st.sampled_from(
        [
            "# A",
            "text here.",
            "- item",
            "  more",
            "1. one",
            "> quote",
            "| a | b |",
            "|---|---|",
            "```",
            "",
            "",
            "<p>",
            "x  ",
            "a line that is long enough to be wrapped, >5 words",
        ]
    )
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cf")), max_size=60),
    max_size=12,
).map("\n".join)


@given(text=LINES)
@settings(max_examples=150)
def test_the_units_in_their_places_are_the_text_apart_from_where_lines_are_wrapped(text: str) -> None:
    document = document_of(text)
    again = document.assembled([unit.text for unit in document.units])
    assert again.count("\n") <= text.count("\n")
    assert _content(again) == _content(text)


def _content(text: str) -> str:
    """Without spaces, and without the marks of quotes at the beginnings of lines: a quote goes on without them, too,
    and where it is wrapped elsewhere they stand elsewhere.
    """
    return "".join(re.sub(r"^[ \t>]+", "", text, flags=re.MULTILINE).split())


def test_lines_of_verse_and_addresses_are_units_of_their_own() -> None:
    verse = "Roses are red,\nviolets are blue,\nSugar is sweet."
    assert units(verse) == verse.split("\n")


def test_wrapped_chinese_is_joined_without_a_space() -> None:
    first, second = (
        "夜间列车今年全部客满了运营商订购了很多新的车厢因为需求不断增加所以价格也上涨了很多而且还会",
        "继续上涨。",
    )
    assert units(f"{first}\n{second}") == [first + second]


def test_a_mark_of_a_list_never_gets_to_the_beginning_of_a_line() -> None:
    words = "wrapped at forty characters or more there is a line"
    document = document_of(f"{words} and\nanother one of them that follows")
    (unit,) = document.units
    for mark in ("-", "1.", "#", ">", ">5", "+", "==", "~~~"):
        lines = document.assembled([f"Das kostet weniger {mark} fünf {mark} Wochen {mark} oder mehr"]).split("\n")
        assert not any(line.startswith(mark) for line in lines), lines
    assert unit.prefixes == ("",)


def test_a_border_in_a_cell_is_escaped() -> None:
    document = document_of("| a |\n|---|\n| b |\n")
    assert document.assembled(["x|y", "z\\|w"]) == "| x\\|y |\n|---|\n| z\\|w |\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\r\n\r\ntwo\rthree", "one\n\ntwo\nthree"),
        ("a\u202eb\u2066c\u200fd\x07\ufeff", "abcd"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_line_breaks_are_unified_and_controls_left_out_but_joiners_kept(text: str, expected: str) -> None:
    document = document_of(text)
    assert document.assembled([unit.text for unit in document.units]) == expected


def test_a_text_for_each_unit_is_needed() -> None:
    with pytest.raises(ValueError, match="1 texts for 2 units"):
        document_of("# A\n\nb\n").assembled(["x"])
