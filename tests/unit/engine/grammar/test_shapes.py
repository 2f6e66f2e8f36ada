"""Where a text stands in its schema, and how it ends soonest: by pattern, by number, by keyword.

What the grammar itself allows is asked of llguidance.
"""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.grammars import compiled
from tests.support.json_schemas import record, text
from tests.unit.engine.conftest import make_tokenizer
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.dialect import source_of
from thothy_ai.engine.grammar.keywords import UnknownError
from thothy_ai.engine.grammar.matching import Options, Pattern, PatternError
from thothy_ai.engine.grammar.numbers import Limits, Number
from thothy_ai.engine.grammar.patterns import searched
from thothy_ai.engine.grammar.reading import Reading
from thothy_ai.engine.grammar.shapes import Shapes
from thothy_ai.engine.grammar.texts import matches
from thothy_ai.engine.grammar.tokens import JsonTokens
from thothy_ai.engine.text.model_text import core_tokenizer

COMPILER = GrammarCompiler(core_tokenizer(make_tokenizer()), 741, (0, 2))
TOKENS = COMPILER._vocabulary.tokens


@pytest.mark.parametrize(
    ("pattern", "shortest"),
    [
        ("^[a-z]{2,10}$", "aa"),
        (r"\.pdf$", ".pdf"),
        ("[0-9]", "1"),
        (r"\d{4}", "1111"),
        ("^.+ (GmbH|AG)$", "a AG"),
        ("^[A-Z]{2,10}-[0-9]+$", "AA-1"),
        ("a|bbb", "a"),
        ("^a{3}|b$", "b"),
        ("^(?:ab(?:c{10}|d)?){2}$", "abab"),
        ("^((a{10})?b{2})+$", "bb"),
        (r"^\u0041\x42\x{43}[\]\"-]$", "ABC-"),
        ("^日本{2}$", "日本本"),
        (r"^\p{Lu}\P{L}$", "A1"),
        ("^[[:alpha:]&&[^a-z]]$", "A"),
        ("(?i)^q$", "Q"),
        ("^[tT][zZ]$", "TZ"),
        ("", ""),
    ],
)
def test_the_shortest_match_of_a_pattern(pattern: str, shortest: str) -> None:
    rule = Pattern(searched(pattern))
    assert rule.strings(rule.start, ())[0] == shortest


def test_what_may_be_empty_is_not_searched_once_for_each_time_it_may_stand() -> None:
    rule = Pattern(searched("^(a?b?){3000}c$"))
    before = len(rule._places)
    assert "c" in rule.strings(rule.start, ())[0]
    assert len(rule._places) - before < 1000


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", r"\bfoo", "a^b", "(ab", "ab)", "[a", r"^\p{Greek}$", "^(?<!a)b$", "a**b("]
)
def test_other_syntax_is_not_guessed(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(searched(pattern))


EXPRESSION = "^(?:[a-c](?:bb|c{2,4}(?:de)?){1,3}|x.*y|[^a-z]+)f?$"


@given(st.from_regex(re.compile(EXPRESSION.replace("$", r"\Z"), re.ASCII), fullmatch=True), st.integers(0, 30))
def test_what_has_begun_is_completed(whole: str, count: int) -> None:
    rule = Pattern(searched(EXPRESSION))
    begun, stand = whole[:count], rule.start
    for sign in begun:
        stand = rule.step(stand, ord(sign))
    ends = rule.strings(stand, ("bb", "paragraph"))
    assert all(re.fullmatch(EXPRESSION, begun + end) for end in ends)
    assert len(ends[0]) <= max(rule.longest, len(whole) - len(begun))
    assert matches(rule, whole)


def test_options_are_found_by_their_beginning() -> None:
    rule = Options(["sun", "sunday", "moon", ""])
    assert rule.accepts(rule.start)
    after = rule.step(rule.step(rule.step(rule.start, ord("s")), ord("u")), ord("n"))
    assert rule.accepts(after)
    assert sorted(rule.strings(after, ())) == ["", "day"]
    assert not rule.step(after, ord("x"))


bounds = st.one_of(st.none(), st.integers(-300, 300), st.sampled_from([0.5, -0.25, 1e9, 12.75]))


@given(
    bounds, bounds, st.booleans(), st.sampled_from([None, 1, 7, 0.5, 0.25, 10]), st.booleans(), st.integers(0, 2**32)
)
def test_numbers_end_within_their_limits(
    low: float | None, high: float | None, excluded: bool, step: float | None, whole: bool, seed: int
) -> None:
    """Whatever digits were written before, as long as some end exists."""
    keyword = "exclusiveMinimum" if excluded else "minimum"
    node = {keyword: low, "maximum": high, "multipleOf": step}
    limits = Limits.of(node)._replace(whole=whole)
    number, draw = Number(limits), random.Random(seed)
    written = ""
    while (end := number.end(written)) is not None and len(written) < 12:
        value = Fraction(written + end)
        assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", written + end)
        assert limits.free or limits.allow(value)
        further = [sign for sign in "0123456789-." if number.continues(written + sign)]
        if not further:
            break
        written += draw.choice(further)
    if not written and end is None:
        assert low is not None or high is not None


def shapes(schema: object, colon: str = ":") -> Shapes:
    return Shapes(json.dumps(schema), TOKENS, colon.encode())


def shortest(schema: object) -> Any:
    end = Reading.at_start(shapes(schema), TOKENS).end()
    return None if end is None else json.loads(end)


NODE = {"type": "object", "properties": {"v": {"type": "null"}, "k": {"$ref": "#/$defs/n"}}, "required": ["v"]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [100000000000, 2]}, 2),
        ({"const": {"a": [1, None], "b": "x"}}, {"a": [1, None], "b": "x"}),
        ({"enum": ["a very long one", "no", {"key": 1}]}, "no"),
        ({"enum": ["a", "bb"], "minLength": 2}, "bb"),
        ({"enum": ["", "a", "paragraph"], "pattern": "^p"}, "paragraph"),
        ({"enum": [1, 2.5, 30], "minimum": 2, "type": "number"}, 30),
        ({"enum": [True, 1], "type": "boolean"}, True),
        ({"anyOf": [{"type": "array", "items": {"type": "null"}, "minItems": 3}, record(a={"type": "null"})]}, None),
        ({"type": ["string", "array"], "minItems": 2}, ""),
        ({"$ref": "#/$defs/n", "$defs": {"n": NODE}}, {"v": None}),
        ({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]}, {"b": 2}),
        ({"type": "object", "required": ["x"], "additionalProperties": {"const": 5}}, {"x": 5}),
        (record(a={"type": "string", "pattern": "^[a-z ]+$", "minLength": 4, "maxLength": 5}), None),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3}, [1, 2, 2]),
        (
            {
                "type": "object",
                "allOf": [{"properties": {"a": {"minLength": 1}}}, {"properties": {"a": {"type": "string"}}}],
                "required": ["a"],
                "additionalProperties": False,
            },
            None,
        ),
        ({"$ref": "#/$defs/a/b~1c", "$defs": {"a": {"b/c": {"const": "x"}}}}, "x"),
        ({"$ref": "#"}, None),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, None),
    ],
)
def test_the_shortest_value_of_a_schema(schema: dict[str, Any], value: object) -> None:
    found = shortest(schema)
    if value is not None:
        assert found == value
    elif found is not None:
        assert compiled(COMPILER, json.dumps(schema))._lexers.outline is not None


SCHEMAS: dict[str, dict[str, Any]] = {
    **{name: text(name) for name in (r"\.pdf$", "^a|b$", r"^\S+ \w+$", "^[^@]+@[a-z]+$", "^(?:a{3,5}b)+$")},
    **{
        name: {"type": "string", "format": name}
        for name in ("duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
    },
    "length": {"type": "string", "minLength": 4, "maxLength": 9},
    "limits": {"type": "number", "exclusiveMinimum": 0, "maximum": 12.5},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 20},
    "keys": {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
    "open": {"type": "object", "properties": {"a": {"type": "integer"}, "b": text("^[a-z]{4,}$")}, "required": ["b"]},
    "choice": {
        "anyOf": [record(a={"type": "null"}), record(a={"type": "boolean"}, b={"type": "null"}), text("^a{9}$")]
    },
    "places": {"type": "array", "prefixItems": [{"type": "null"}], "items": {"enum": ["x", "yy", 7]}, "minItems": 2},
    "tree": {"$ref": "#/$defs/n", "$defs": {"n": NODE}},
    "anything": {},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_the_grammar_allows_is_read_and_ends_as_it_allows(name: str) -> None:
    """Random texts of the grammar, byte by byte where it lets them: at each token there is an end that it accepts, and
    it is the same however the text was divided.
    """
    draw, table, colon = random.Random(name), TOKENS.table, source_of(json.dumps(SCHEMAS[name])).colon
    row = np.empty(TOKENS.words, np.int32)
    for _ in range(6):
        grammar = compiled(COMPILER, json.dumps(SCHEMAS[name]))
        matcher, found = grammar.matcher, shapes(SCHEMAS[name], colon)
        reading, by_bytes = Reading.at_start(found, TOKENS), Reading.at_start(found, TOKENS)
        for _ in range(25):
            end = reading.end()
            assert end is not None
            assert end == by_bytes.end()
            ended = matcher.deep_copy()
            assert not end or ended.consume_tokens(TOKENS.divided(end)), end
            assert ended.is_accepting(), end
            matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
            allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
            allowed = [token for token in allowed.tolist() if table[token]]
            if not allowed:
                break
            single = [token for token in allowed if len(table[token]) == 1 and table[token] != b'"']
            token = draw.choice(single if single and draw.random() < 0.7 else allowed)
            assert matcher.consume_token(token)
            reading.feed(table[token])
            for byte in table[token]:
                by_bytes.feed(bytes([byte]))


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": 5},
        {"anyOf": 7},
        {"type": "object", "properties": ["a"]},
        {"type": "array", "items": {}, "minItems": "x"},
        {"type": "string", "minLength": "x"},
        {"type": "string", "format": "colour"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/none"},
    ],
)
def test_a_schema_that_is_not_understood_is_not_guessed(schema: dict[str, Any]) -> None:
    with pytest.raises(UnknownError):
        shapes(schema)


def test_references_to_references_take_time_once_each() -> None:
    steps = {
        f"s{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/s{n + 1}"} for k in "ab"}} for n in range(30)
    }
    steps["s30"] = {"type": "null"}
    assert shortest({"$ref": "#/$defs/s0", "$defs": steps}) == {}


def test_a_text_is_divided_into_the_fewest_tokens() -> None:
    tokens = JsonTokens([b"a", b"ab", b"abc", b"c", b"", b"\xc3\xa9", b"bcca"])
    assert tokens.divided(b"ababcca\xc3\xa9") == [1, 0, 6, 5]
    assert tokens.divided(b"abx") == []
    assert tokens.divided(b"") == []
