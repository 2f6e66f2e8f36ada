"""Where a JSON text stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.grammar.position import JsonPosition

VALUE = {"a": 'x"\\y', "k": [{"p": "q", "r": [1, 22, "s"]}, {"p": "z"}], "e": [], "o": {}, "z": "Hi."}


@given(st.lists(st.integers(1, 9), max_size=60))
def test_the_position_does_not_depend_on_the_pieces(sizes: list[int]) -> None:
    data = json.dumps(VALUE, separators=(",", ":")).encode()
    whole, pieces, at = JsonPosition(), JsonPosition(), 0
    for size in sizes:
        pieces.feed(data[at : at + size])
        at += size
        whole = JsonPosition()
        whole.feed(data[:at])
        assert (pieces.place, pieces.in_string) == (whole.place, whole.in_string)
        assert pieces.last == whole.last


@pytest.mark.parametrize(
    ("text", "place", "in_string", "in_value"),
    [
        ("", (), False, False),
        ('{"a', (), True, False),
        ('{"a":"x', (b"a",), True, True),
        (r'{"a":"x\"', (b"a",), True, True),
        (r'{"a":"x\\"', (b"a",), False, False),
        ('{"a":1,"k":[', (b"k",), False, False),
        ('{"a":1,"k":[12', (b"k", 0), False, False),
        ('{"a":1,"k":[12,3', (b"k", 1), False, False),
        ('{"k":[{"p":1},{"q":[2,"', (b"k", 1, b"q", 1), True, True),
        ('{"k":[{"p":1},{"q":[2,"x"]}', (b"k", 1), False, False),
        ('{"k":[],"z', (b"k",), True, False),
        ('{"k":{},"z":', (b"z",), False, False),
        ("[[1,2],[3", (1, 0), False, False),
    ],
)
def test_positions(text: str, place: tuple[object, ...], in_string: bool, in_value: bool) -> None:
    position = JsonPosition()
    position.feed(text.encode())
    assert (position.place, position.in_string, position.in_value_string) == (place, in_string, in_value)
