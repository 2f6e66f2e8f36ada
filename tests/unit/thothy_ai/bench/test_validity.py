"""Outputs are checked against their schemas, independently of the grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thothy_ai.bench.validity import flaw

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["title", "tags"],
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "pattern": "^[A-Z][a-z]{1,5}$", "maxLength": 5},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "minItems": 1, "maxItems": 2},
        "note": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}]},
        "kind": {"const": "é"},
    },
    "$defs": {"Tag": {"enum": ["a", "b"], "type": "string"}},
}
VALID = {"title": "Abc", "tags": ["a", "b"]}


@pytest.mark.parametrize("value", [VALID, VALID | {"note": None}, VALID | {"note": 8}, VALID | {"kind": "é"}])
def test_what_matches_has_no_flaw(value: dict[str, Any]) -> None:
    assert flaw(json.dumps(SCHEMA), json.dumps(value)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"title": "abc"}, "output.title: pattern"),
        ({"title": "Abc\n"}, "output.title: pattern"),
        ({"title": "Abcdef"}, "output.title: maxLength"),
        ({"title": 3}, "output.title: not of type string"),
        ({"tags": []}, "output.tags: minItems"),
        ({"tags": ["a"] * 3}, "output.tags: maxItems"),
        ({"tags": ["a", "c"]}, "output.tags.1: enum"),
        ({"note": 0}, "output.note: none of the alternatives"),
        ({"note": 9}, "output.note: none of the alternatives"),
        ({"note": True}, "output.note: none of the alternatives"),
        ({"kind": "e"}, "output.kind: const"),
        ({"more": 1}, "output: more is not expected"),
    ],
)
def test_a_flaw_is_named(change: dict[str, Any], words: str) -> None:
    assert flaw(json.dumps(SCHEMA), json.dumps(VALID | change)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"title": "Abc"}', "output: tags is missing"),
        ('{"title": "Ab', "not JSON"),
        ("[]", "output: not of type object"),
    ],
)
def test_other_texts(text: str, words: str) -> None:
    found = flaw(json.dumps(SCHEMA), text)
    assert found is not None
    assert found.startswith(words)
