"""How short texts can be, and what a token can add: patterns, schemas, and where a JSON text stands."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.grammar.bounds import bounds_of
from thothy_ai.engine.grammar.patterns import pattern_length
from thothy_ai.engine.grammar.position import JsonPosition
from thothy_ai.jobs import schema as fields


@pytest.mark.parametrize(
    ("pattern", "least", "rise"),
    [
        ("^[a-z]{20,200}$", 20, 1),
        ("^abc$", 3, 0),
        ("a|bbb", 1, 2),
        ("^ab(?:c{10}|d)?$", 2, 10),
        ("^(x{3}(y{4,9})*)+$", 3, 5),
        ("^((a{10})?b{10})*$", 0, 20),
        (r"\d{4}-\d{2}\u0041\x41\.", 10, 0),
        ("日本{2}", 9, 0),
        ("[а-я]{3}", 12, 0),
        (r"[\]\"a-]{2}\b$", 2, 0),
        (r"\p{L}{2,}", 2, 1),
        ("(?<name>ab)(?=c)", 3, 0),
        ("a{3}{2}", 6, 0),
        ("", 0, 0),
        ("[", 1, 0),
        ("(ab", 2, 0),
        ("ab)", 2, 0),
    ],
)
def test_patterns(pattern: str, least: int, rise: int) -> None:
    length = pattern_length(pattern)
    assert (length.least, length.rise) == (least, rise)


@given(st.from_regex(re.compile(r"\A[a-c](?:bb|c{2,4}(?:de)?){1,3}f?\Z"), fullmatch=True))
def test_no_match_is_shorter(text: str) -> None:
    assert len(text) >= pattern_length("^[a-c](?:bb|c{2,4}(?:de)?){1,3}f?$").least == 3


def test_a_further_sentence_is_what_may_be_begun_in_sentences() -> None:
    schema: dict[str, Any] = {"minLength": 0, "maxLength": 0}
    fields.sentences(1, 3, 200).json_schema_extra(schema)  # type: ignore[operator, union-attr, call-arg]
    length = pattern_length(schema["pattern"])
    assert length.least == fields.MIN_SENTENCE_CHARS
    assert fields.MIN_SENTENCE_CHARS < length.rise <= 4 * fields.MIN_SENTENCE_CHARS


def record(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


WORD = {"type": "string", "pattern": "^[a-z]{3,9}$"}


@pytest.mark.parametrize(
    ("schema", "least", "opening", "plain"),
    [
        ({"const": "same"}, 6, 0, True),
        ({"enum": ["a", "bbb"]}, 3, 0, True),
        (WORD, 5, 0, True),
        (record(["a"], a=WORD), 12, 0, True),
        (record([], a=WORD), 2, 10, False),
        ({"type": "array", "items": WORD, "minItems": 2, "maxItems": 2}, 14, 0, True),
        ({"type": "array", "items": WORD, "minItems": 1, "maxItems": 2}, 8, 6, True),
        ({"type": "array", "items": WORD}, 2, 6, True),
        ({"type": "array", "items": {"type": "array", "items": WORD}, "maxItems": 3}, 2, 9, True),
        ({"anyOf": [{"type": "null"}, WORD]}, 5, 5, False),
        ({"$ref": "#/$defs/w", "$defs": {"w": WORD}}, 5, 0, True),
        ({"type": "boolean"}, 5, 0, True),
        ({"type": "string", "format": "date"}, 42, 0, False),
        ({"type": ["null", "string"]}, 4, 40, False),
        ({"$ref": "#"}, 4, 40, False),
        ({"$ref": "#/nowhere"}, 4, 40, False),
        ({"allOf": [WORD]}, 4, 40, False),
    ],
)
def test_schemas(schema: dict[str, Any], least: int, opening: int, plain: bool) -> None:
    found = bounds_of(json.dumps(schema))
    assert (found.least, found.opening, found.plain) == (least, opening, plain)


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
        assert (pieces.place, pieces.in_string, pieces.strings) == (whole.place, whole.in_string, whole.strings)
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


@pytest.mark.parametrize(("text", "wide"), [('"世界', True), ('"ö', False), ('"x', False), ("", False), ('"“', False)])
def test_wide_characters(text: str, wide: bool) -> None:
    position = JsonPosition()
    position.feed(text.encode())
    assert position.wide == wide


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": []},
        {"enum": 5},
        {"anyOf": []},
        {"oneOf": [{"enum": []}]},
        {"type": "object", "properties": {"a": {"enum": []}}},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "properties": {}, "required": 7},
        {"type": "array", "items": {"enum": []}, "minItems": "x"},
        {"type": "string", "minLength": "x"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"enum": []}]}}},
    ],
)
def test_of_an_impossible_schema_nothing_is_known(schema: dict[str, Any]) -> None:
    assert not bounds_of(json.dumps(schema)).plain


def test_references_to_references_take_time_once_each() -> None:
    steps = {
        f"s{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/s{n + 1}"} for k in "ab"}} for n in range(30)
    }
    steps["s30"] = {"type": "null"}
    assert bounds_of(json.dumps({"$ref": "#/$defs/s0", "$defs": steps})).least == 2
