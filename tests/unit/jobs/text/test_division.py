"""Division by meaning: nothing is lost, parts fit, and structure is cut only where there is no other place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.jobs.text.blocks import blocks
from thothy_ai.jobs.text.division import divide, estimated_tokens

PARAGRAPH = "Night trains are full. Operators order new cars, which arrive late. Prices rise."
CODE = "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(12)) + "\n```\n"
TABLE = "| city | bikes |\n|---|---|\n" + "".join(f"| Town {number} | {number} |\n" for number in range(12))
LIST = "".join(f"- Item {number} is here. It has two sentences.\n" for number in range(8))
MARKDOWN = st.lists(
    st.sampled_from(
        ["# One\n\n", "## Two\n\n", f"{PARAGRAPH}\n\n", CODE, TABLE, LIST, "> quoted\n", "汉字。漢字！\n", "x" * 90]
    ),
    max_size=12,
).map("".join)


@given(text=MARKDOWN | st.text(max_size=400), limit=st.integers(5, 200))
@settings(max_examples=60)
def test_the_parts_joined_are_the_text(text: str, limit: int) -> None:
    assert "".join(divide(text, limit)) == text


@given(text=MARKDOWN, limit=st.integers(60, 300))
@settings(max_examples=40)
def test_every_part_is_within_the_limit(text: str, limit: int) -> None:
    assert max(map(estimated_tokens, divide(text, limit)), default=0) <= limit


def test_a_text_that_fits_is_one_part_and_an_empty_one_is_none() -> None:
    assert divide(PARAGRAPH, 1000) == (PARAGRAPH,)
    assert divide("", 10) == ()


def test_headings_are_the_first_places_to_cut_at() -> None:
    text = f"# A\n\n{PARAGRAPH}\n\n{PARAGRAPH}\n\n# B\n\n{PARAGRAPH}\n\n{PARAGRAPH}\n"
    first, second = divide(text, estimated_tokens(text) * 0.7)
    assert first.startswith("# A")
    assert second.startswith("# B")


def test_sections_of_a_chapter_stay_together_while_they_fit() -> None:
    section = f"## S\n\n{PARAGRAPH}\n\n"
    text = f"# A\n\n{section * 3}# B\n\n{section}"
    parts = divide(text, estimated_tokens(f"# A\n\n{section * 3}"))
    assert [part.count("## S") for part in parts] == [3, 1]


@pytest.mark.parametrize(("block", "mark"), [(CODE, "```python"), (TABLE, "| city"), (LIST, "- Item 0")])
def test_code_tables_and_lists_are_not_cut_where_they_fit(block: str, mark: str) -> None:
    text = f"{PARAGRAPH}\n\n{block}\n{PARAGRAPH}\n\n{PARAGRAPH}\n"
    parts = divide(text, estimated_tokens(block) + 5)
    assert len(parts) > 1
    assert [part for part in parts if mark in part and block.strip() in part]


def test_a_long_list_is_cut_between_its_items_and_long_code_between_its_lines() -> None:
    assert all(part.startswith("- Item") for part in divide(LIST, 40))
    assert all(part.endswith("\n") for part in divide(CODE, 40))


def test_a_paragraph_is_cut_between_sentences_even_where_its_lines_were_wrapped() -> None:
    text = "One sentence that was\nwrapped somewhere. Another\none follows it here. And a\nthird one ends it all."
    assert [part.strip() for part in divide(text, 14)] == [
        "One sentence that was\nwrapped somewhere.",
        "Another\none follows it here.",
        "And a\nthird one ends it all.",
    ]


def test_chinese_is_cut_between_sentences() -> None:
    assert divide("夜间列车客满。运营商订购新车。价格上涨。", 8) == ("夜间列车客满。", "运营商订购新车。", "价格上涨。")


@pytest.mark.parametrize("link", ["[see p. 3. There](https://x.org/a.b?c=d. E)", "`a. B`", '<a title="A. B">'])
def test_a_link_or_code_is_not_cut(link: str) -> None:
    parts = divide(f"{PARAGRAPH} Look at {link} for more of it. {PARAGRAPH}", 25)
    assert sum(link in part for part in parts) == 1


def test_a_text_without_any_place_to_cut_at_is_cut_anyway() -> None:
    parts = divide("x" * 1_000_000, 500)
    assert max(map(estimated_tokens, parts)) <= 500
    assert len(parts) < 800


def test_a_megabyte_is_divided() -> None:
    text = f"# A\n\n{PARAGRAPH}\n\n{TABLE}\n{CODE}\n{LIST}\n"
    text *= 1_000_000 // len(text)
    parts = divide(text, 5_000)
    assert "".join(parts) == text
    assert len(parts) <= 1.5 * estimated_tokens(text) / 5_000


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        (PARAGRAPH, 18, 30),
        ("夜间列车客满", 5, 12),
        ("Поезда переполнены", 6, 14),
        ("กรุงเทพมหานคร", 8, 16),
        ("😀😀", 2, 6),
    ],
)
def test_tokens_are_estimated_by_script(text: str, least: int, most: int) -> None:
    assert least <= estimated_tokens(text) <= most


def test_blocks_are_found_with_their_lines_and_levels() -> None:
    found = blocks("---\ntitle: x\n---\n# H\n\ntext\n\n- a\n  - b\n\n| x |\n|---|\n| 1 |\n\n    indented text\n")
    kinds = [(block.kind, block.first, block.last) for block in found]
    assert kinds[:3] == [("front matter", 0, 3), ("heading", 3, 4), ("paragraph", 5, 6)]
    assert ("table", 10, 13) in kinds
    assert kinds[-1] == ("paragraph", 14, 15)
    assert found[1].level == 1
