"""What tokens add to an open string."""

from __future__ import annotations

import pytest

from thothy_ai.engine.grammar.tokens import JsonTokens

ADDED = {
    b"ab": 2,
    "aé日😀".encode(): 4,
    b"x\xe2\x80": 2,  # the second one is begun
    b"a\\": 2,
    b"\\n\\\\": 2,
    b"\\u00e9b": 2,
    b"\\u00": 1,
    b'a"bc': 1,
    b'"': 0,
    b'\\"x': 2,
    b'\\\\"x': 1,
    b"x" * 300: 300,
}


@pytest.mark.parametrize("data", ADDED)
def test_characters_are_counted_up_to_the_end_of_the_string(data: bytes) -> None:
    tokens = JsonTokens([data])
    assert tokens.begun_characters.tolist() == [ADDED[data]]
    for most in (*range(6), 260):
        assert (tokens.up_to(most)[0] == 1) == (ADDED[data] <= most)


def test_of_pairs_of_escapes_by_number_it_is_not_known() -> None:
    tokens = JsonTokens([b"\\u00e9", b"\\ud83d", b"a\\u00e9b\\u", b"u00u"])
    assert tokens.unsure_bits.tolist() == [0b0110]
