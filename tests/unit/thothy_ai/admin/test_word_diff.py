"""What a person has changed in a text: both texts can be read from it, and it takes no longer for long ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.admin.word_diff import word_diff

TEXTS = st.lists(st.sampled_from(["a", "b", "one", " ", "  ", "\n", "字"]), max_size=30).map("".join)


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_from_it(before: str, after: str) -> None:
    parts = list(word_diff(before, after))
    assert "".join(text for what, text in parts if what != "came") == before
    assert "".join(text for what, text in parts if what != "gone") == after
    assert all(text for _, text in parts)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("Sales rose by 40 percent.", "Sales rose by 14 percent.",
         [("same", "Sales rose by "), ("gone", "40"), ("came", "14"), ("same", " percent.")]),
        ("", "New.", [("came", "New.")]),
        ("Same.", "Same.", [("same", "Same.")]),
        ("so " * 300_000, "it " * 300_000, [("gone", "so " * 300_000), ("came", "it " * 300_000)]),
    ],
    ids=["a word", "all", "nothing", "a long text anew"],
)  # fmt: skip
def test_only_what_differs_is_marked(before: str, after: str, shown: list[tuple[str, str]]) -> None:
    found = [tuple(each) for each in word_diff(before.strip(), after.strip())]
    assert found == [(what, text.strip() if len(text) > 1000 else text) for what, text in shown]
