"""Schemas by keyword, with values that match and values that do not, through the real grammar; and what is refused."""

from __future__ import annotations

import json

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.grammars import compiled
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.dialect import COMPACT, source_of
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import Context
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
A = {"type": "object", "properties": {"a": NUMBER}}
BIG = 2**53


class Raw(str):
    """A value as it is written."""

    __slots__ = ()


def closed(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


BY_KEYWORD: list[tuple[str, object, list[object], list[object]]] = [
    ("nothing", {}, [None, True, 1, 0.5, "a", [], [1, ["b"]], {}, {"a": {"b": []}}], [Raw("nul"), Raw("[1,]")]),
    ("type", {"type": "null"}, [None], [0, False, "null"]),
    ("type", {"type": "boolean"}, [True, False], [None, 1, "true"]),
    ("type", NUMBER, [0, -7, 12345678901234567890], [0.5, "1", None, Raw("01"), Raw("+1")]),
    ("type", {"type": "number"}, [0, -7, 0.25, Raw("1e9"), Raw("2.5E-3")], ["1", None, Raw(".5"), Raw("1.")]),
    ("type", TEXT, ["", "a", 'a"b\\\n', "é日😀"], [1, None, Raw('"\n"'), Raw("'a'")]),
    ("type", {"type": ["integer", "null"]}, [1, None], ["a", 0.5, []]),
    ("const", {"const": {"a": [1, "b", None]}}, [{"a": [1, "b", None]}], [{"a": [1, "b"]}, {}, [1, "b", None]]),
    ("const", {"const": BIG - 1}, [BIG - 1], [BIG - 2, BIG]),
    ("const", {"const": 2.0}, [2], [3, "2"]),
    ("enum", {"enum": [1, "a", None, [2], {"b": 3}]}, [1, "a", None, [2], {"b": 3}], [2, "b", [], {"b": 4}]),
    ("enum", {"enum": ["a", "abc", 7], "minLength": 2}, ["abc", 7], ["a", "ab"]),
    ("minLength", {"type": "string", "minLength": 2.0}, ["ab", "😀é"], ["", "a", "😀"]),
    ("maxLength", {"type": "string", "maxLength": 2.0}, ["", "ab", "😀😀"], ["abc", "😀😀😀"]),
    ("pattern", {"type": "string", "pattern": "b"}, ["b", "abc"], ["", "a", "ac"]),
    ("pattern", {"type": "string", "pattern": "^a|b$"}, ["a", "axx", "xxb"], ["xax", "bx"]),
    ("pattern", {"type": "string", "pattern": r"^\d{2}\$$"}, ["12$"], ["12", "1$", "١٢$"]),
    ("format", {"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31", "2000-02-29"],
     ["0000-04-01", "2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "23-01-01"]),
    ("format", {"type": "string", "format": "time"}, ["00:00:00Z", "23:59:59.5+05:30"],
     ["23:59:60Z", "00:00:60Z", "24:00:00Z", "12:00:00", "12:00Z"]),
    ("format", {"type": "string", "format": "date-time"}, ["2024-02-29T23:59:59Z", "2023-01-01T00:00:00.25-08:00"],
     ["2023-02-29T00:00:00Z", "0000-04-01T00:00:00Z", "2023-01-01T00:00:60Z", "2023-01-01", "2023-01-01T00:00:00"]),
    ("format", {"type": "string", "format": "date", "pattern": "^2"}, ["2024-01-01"], ["1999-01-01", "2"]),
    ("format", {"type": "string", "format": "uuid"}, ["c56a4180-65aa-42ec-a945-5fd21dec0538"], ["c56a4180", ""]),
    ("format", {"type": "string", "format": "ipv4"}, ["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
    ("format", {"type": "string", "format": "ipv6"}, ["::1", "2001:db8::ff"], ["1::2::3", "12345::"]),
    ("format", {"type": "string", "format": "email"}, ["a@b.org"], ["a", "@b.org", "a b@c.org"]),
    ("format", {"type": "string", "format": "colour"}, ["anything", ""], [1]),
    ("format", {"format": "int32", "type": "integer"}, [1], ["1"]),
    ("minimum", {"type": "integer", "minimum": -3}, [-3, 0, 100], [-4, -30]),
    ("minimum", {"type": "number", "minimum": 0.5}, [0.5, 0.75, 12], [0, 0.49, -1]),
    ("maximum", {"type": "integer", "maximum": BIG - 1}, [0, -5, BIG - 1], [BIG, 10**17]),
    ("maximum", {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, [0, 2**63 - 1], [-1, 2**63, 10**19]),
    ("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, [0.1, 1, 20], [0, Raw("0.0"), Raw("-0"), -1]),
    ("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
     [0.5, 0.1, Raw("0.0000001")], [0, Raw("0.0"), Raw("-0"), 0.6, 1]),
    ("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 7, "exclusiveMaximum": 7.5}, [7.25], [7, 7.5, 8]),
    ("exclusiveMinimum", {"type": "number", "allOf": [{"exclusiveMinimum": 3}, {"maximum": 3.25}]}, [3.25], [3, 3.5]),
    ("exclusiveMinimum", {"type": "integer", "minimum": 3, "exclusiveMinimum": True}, [4], [3]),
    ("exclusiveMaximum", {"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}, [-0.5, -0.1], [0, Raw("-0"), -1]),
    ("exclusiveMaximum", {"type": "number", "minimum": -2.5, "exclusiveMaximum": -2}, [-2.25], [-2, -3, 2]),
    ("exclusiveMaximum", {"type": "integer", "maximum": 3, "exclusiveMaximum": False}, [3], [4]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, [0, 14, -21], [1, 15]),
    ("multipleOf", {"type": "number", "multipleOf": 0.25}, [Raw("0.50"), 1, 1.75], [0.1, 0.3]),
    ("items", {"type": "array", "items": NUMBER}, [[], [1], [1, 2, 3]], [["a"], [1, "a"]]),
    ("items", {"type": "array", "items": NUMBER, "additionalItems": False}, [[], [1, 2]], [["a"]]),
    ("items", {"type": "array", "items": [NUMBER, TEXT], "additionalItems": False}, [[], [1], [1, "a"]],
     [["a"], [1, 2], [1, "a", 2]]),
    ("prefixItems", {"type": "array", "prefixItems": [NUMBER, TEXT]}, [[], [1], [1, "a", None]], [["a"], [1, 2]]),
    ("prefixItems", {"type": "array", "prefixItems": [NUMBER], "items": False}, [[], [1]], [["a"], [1, 2]]),
    ("prefixItems", {"type": "array", "prefixItems": [NUMBER], "additionalItems": False}, [[1], [1, 2]], [["a"]]),
    ("prefixItems", {"type": "array", "prefixItems": [NUMBER], "items": TEXT, "additionalItems": False},
     [[1, "a"]], [["a"], [1, 2]]),
    ("minItems", {"type": "array", "items": NUMBER, "minItems": 2.0}, [[1, 2], [1, 2, 3]], [[], [1]]),
    ("maxItems", {"type": "array", "items": NUMBER, "maxItems": 2}, [[], [1, 2]], [[1, 2, 3]]),
    ("uniqueItems", {"type": "array", "items": NUMBER, "uniqueItems": False}, [[1, 1]], [["a"]]),
    ("properties", A, [{}, {"a": 1}, {"a": 1, "b": "x"}], [{"a": "x"}, Raw('{"\\u0061":"x"}'), Raw('{"a":1,"a":2}')]),
    ("properties", {"type": "object", "properties": {'a"b': NUMBER, "a/b": NUMBER, "é": NUMBER, "\n": NUMBER}},
     [{'a"b': 1, "a/b": 2, "é": 3, "\n": 4}, {"c": "x"}],
     [Raw('{"a\\u0022b":"x"}'), Raw('{"a\\/b":"x"}'), Raw('{"\\u00e9":"x"}'), Raw('{"\\u000a":"x"}')]),
    ("properties", closed({"a": False, "b": NUMBER}), [{}, {"b": 1}], [{"a": 1}]),
    ("additionalProperties", closed({"a": NUMBER}), [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 1}]),
    ("additionalProperties", A | {"additionalProperties": TEXT}, [{"a": 1, "b": "x"}],
     [{"b": 1}, Raw('{"\\u0061":"x"}')]),
    ("additionalProperties", {"allOf": [A, {"additionalProperties": TEXT}], "type": "object"}, [{"b": "x"}],
     [{"b": 1}, {"a": "x"}, Raw('{"\\u0061":"x"}')]),
    ("required", A | {"required": ["a", "b"]}, [{"a": 1, "b": None}], [{}, {"a": 1}, {"b": None}]),
    ("patternProperties", {"type": "object", "patternProperties": {"^n": NUMBER}, "additionalProperties": TEXT},
     [{}, {"n": 1}, {"n1": 1, "n2": 2, "x": "y"}], [{"n": "x"}, {"x": 1}, Raw('{"\\u006e":"x"}')]),
    ("patternProperties", A | {"patternProperties": {"^a": {"minimum": 5}}}, [{"a": 5, "ab": 6}],
     [{"a": 4}, {"ab": 4}]),
    ("minProperties", {"type": "object", "minProperties": 1}, [{"a": 1}, {"a": 1, "b": 2}], [{}]),
    ("minProperties", A | {"required": ["a"], "minProperties": 2}, [{"a": 1, "b": 2}],
     [{"a": 1}, Raw('{"a":1,"a":2}')]),
    ("minProperties", closed({"a": NUMBER, "b": NUMBER}, "a", "b") | {"minProperties": 2}, [{"a": 1, "b": 2}],
     [{"a": 1}]),
    ("maxProperties", {"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    ("anyOf", {"anyOf": [NUMBER, {"type": "string", "maxLength": 1}]}, [5, "a"], [0.5, "ab"]),
    ("anyOf", {"anyOf": [{"minimum": 3}, {"maximum": 0}], "type": "integer"}, [3, 0, -1], [1, 2]),
    ("oneOf", {"oneOf": [NUMBER, TEXT]}, [1, "a"], [None]),
    ("allOf", {"allOf": [NUMBER, {"minimum": 2}, {"maximum": 4}]}, [2, 4], [1, 5, "a"]),
    ("allOf", {"allOf": [closed({"a": NUMBER, "b": {}}, "a"), A | {"required": ["b"]}]}, [{"a": 1, "b": 2}],
     [{"a": 1}]),
    ("$ref", {"$defs": {"n": {"type": "integer", "minimum": 2}}, "$ref": "#/$defs/n", "maximum": 3}, [2, 3], [1, 4]),
    ("$ref", {"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [1, [1]]),
    ("$ref", {"$ref": "#/components/schemas/a~1b%20c",
                "components": {"schemas": {"a/b c": {"type": "string", "maxLength": 1.0}}}},
     ["a"], ["ab", 1]),
    ("$ref", closed({"a": {"$ref": "#"}}), [{}, {"a": {"a": {}}}], [{"a": 1}]),
    ("$ref", {"anyOf": [{"$ref": "#"}, {"const": 1}]}, [1], [2]),
    ("$ref", closed({"a": {"$ref": "#/$defs/endless"}, "b": NUMBER}) |
     {"$defs": {"endless": {"$ref": "#/$defs/endless"}}},
     [{}, {"b": 1}], [{"a": 1}, Raw('{"a":')]),
    ("annotations", {"type": "integer", "x-unit": 1, "title": "t", "deprecated": True, "examples": ["a"]}, [1], ["a"]),
    ("x-guidance", {"x-guidance": {"whitespace_flexible": True, "lenient": True, "item_separator": "; "},
                    "type": "array"}, [[1, 2]], [Raw("[ 1]"), Raw("[1; 2]")]),
]  # fmt: skip


def spelled(value: object, colon: str) -> str:
    return json.dumps(value, separators=(",", colon), ensure_ascii=False)


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), 741, (0, 2))


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"), [row[1:] for row in BY_KEYWORD], ids=[row[0] for row in BY_KEYWORD]
)
def test_what_a_keyword_allows(
    compiler: GrammarCompiler,
    tokenizer: PreTrainedTokenizerFast,
    schema: object,
    valid: list[object],
    invalid: list[object],
) -> None:
    grammar = compiled(compiler, json.dumps(schema))
    colon = source_of(json.dumps(schema)).colon

    def accepts(value: object) -> bool:
        text = value.replace(":", colon) if isinstance(value, Raw) else spelled(value, colon)
        tokens = tokenizer.encode(text, add_special_tokens=False)
        matcher = grammar.matcher.deep_copy()
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    assert [value for value in valid if not accepts(value)] == []
    assert [value for value in invalid if accepts(value)] == []


REFUSED = [
    ({"const": BIG + 1}, r"#/const: 9007199254740993 is beyond"),
    (closed({"id": {"enum": ["a", [{"b": -BIG - 1}]]}}), r"#/properties/id/enum: -9007199254740993 is beyond"),
    ({"type": "integer", "maximum": BIG + 1}, r"#/maximum: .* is beyond"),
    ({"type": "integer", "exclusiveMinimum": BIG}, r"#/exclusiveMinimum: .* is beyond"),
    ({"type": "array", "items": {"minimum": -1e20}}, r"#/items/minimum: -1e\+20 is beyond"),
    ({"type": "integer", "maximum": 2**64 - 1}, r"#/maximum: .* is beyond"),
    ({"type": "number", "multipleOf": 1e17}, r"#/multipleOf: .* is beyond"),
    ({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}], "type": "integer"}, "multipleOf: 65539 and 65537"),
    ({"allOf": [{"multipleOf": 0.5}, {"multipleOf": 99999999}], "type": "number"}, "multipleOf: 99999999 and 0.5"),
    ({"type": "string", "maxLength": 1.5}, r"#/maxLength: expected a whole number that is not negative, got 1.5"),
    ({"type": "string", "minLength": -1}, "#/minLength: expected"),
    ({"type": "array", "minItems": "2"}, "#/minItems: expected"),
    ({"type": "array", "maxItems": True}, "#/maxItems: expected"),
    ({"type": "array", "prefixItems": [NUMBER], "items": [TEXT]}, "#/items: a list of schemas beside prefixItems"),
    ({"type": "object", "minProperties": 2}, "#/minProperties: 2 different keys"),
    (A | {"required": ["a"], "minProperties": 3}, "#/minProperties: 3 different keys"),
    ({"type": "object", "patternProperties": {"^x": NUMBER}, "minProperties": 2}, "#/minProperties"),
    (A | {"patternProperties": {"^a$": NUMBER}}, r"#/patternProperties: '\^a\$' matches nothing but keys"),
    (
        closed({"s": NUMBER, "score": NUMBER}) | {"patternProperties": {"^s(core)?$": NUMBER}},
        "matches nothing but keys",
    ),
    ({"type": "object", "required": ["a"], "patternProperties": {"^[a]$": NUMBER}}, "matches nothing but keys"),
    ({"type": "object", "allOf": [A, {"patternProperties": {"^a$": NUMBER}}]}, "matches nothing but keys"),
    ({"$ref": "#"}, "leads back to itself"),
    ({"allOf": [{"$ref": "#"}]}, "leads back to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "leads back to itself"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "leads back to itself"),
    ({"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["a"]}, "leads back to itself"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "leads back to itself"),
    ({"anyOf": [{"$ref": "#"}, {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}]}, "leads back"),
    (closed({"a": {"$ref": "#/$defs/e"}}, "a") | {"$defs": {"e": {"anyOf": [{"$ref": "#/$defs/e"}]}}}, "leads back"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"not": NUMBER}, "not"),
    ({"type": "array", "contains": NUMBER}, "contains"),
    ({"if": NUMBER, "then": TEXT}, "if"),
    ({"oneOf": [NUMBER, {"minimum": 2}]}, "oneOf"),
    (True, "expected an object"),
]


@pytest.mark.parametrize(("schema", "message"), REFUSED)
def test_what_no_text_could_keep_is_refused_by_keyword(compiler: GrammarCompiler, schema: object, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(json.dumps(schema))


def test_a_schema_that_needs_no_other_words_stays_as_it_is() -> None:
    calls = [
        call
        for kind in (trend_summary.KIND, hook.KIND, translation.KIND, report_section.KIND)
        for call in next(kind.plan(kind.request(source="A source of a few words. " * 30), Context()))
    ]
    for schema in map(json.dumps, [*(call.schema for call in calls), {}, closed({"a": {"const": "\u0001"}})]):
        source = source_of(schema)
        assert source.schema is schema
        if "properties" in json.loads(schema):
            assert source.options == COMPACT


def test_many_references_are_followed_in_little_time() -> None:
    count = 900
    links = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(count)} | {f"d{count}": NUMBER}
    circles = {f"c{n}": {"anyOf": [{"$ref": f"#/$defs/c{(n * 7 + k) % 300}"} for k in range(9)]} for n in range(300)}
    assert source_of(json.dumps({"$defs": links, "$ref": "#/$defs/d0"}))
    with pytest.raises(GrammarError, match="leads back"):
        source_of(json.dumps({"$defs": circles, "$ref": "#/$defs/c0"}))
