"""The shortest way to a text's end: of an enumeration the schema tells, of anything else the grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.grammars import compiled
from tests.support.json_schemas import record
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.fields import TextFields
from thothy_ai.engine.grammar.position import JsonPosition, Place
from thothy_ai.engine.grammar.tokens import JsonTokens
from thothy_ai.engine.grammar.walk import END, Walker
from thothy_ai.engine.weights.model_text import core_tokenizer

EOS = (0, 2)
VOCAB = 741
SENTENCES = [f"Sentence number {number} is said to have been spoken in 1{number:03}." for number in range(60)]
SHORT = 'A "short\\one"\né 😀.'


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS)


def completed(compiler: GrammarCompiler, schema: object) -> Any:
    """The value at which a walk from the beginning ends."""
    grammar = compiled(compiler, json.dumps(schema))
    fields = grammar._lexers.fields
    walk = Walker(grammar.matcher.deep_copy(), fields, JsonPosition()).to_the_end()
    assert walk is not None
    return json.loads(b"".join(fields.tokens.table[token] for token in walk.tokens if token != END))


def completed_after(compiler: GrammarCompiler, schema: object, text: bytes) -> Any:
    """The value at which a walk ends that begins after this text, of which each byte is a token."""
    grammar = compiled(compiler, json.dumps(schema))
    fields, position = grammar._lexers.fields, JsonPosition()
    assert grammar.matcher.consume_tokens([fields.tokens.by_bytes[bytes([byte])] for byte in text])
    position.feed(text)
    walk = Walker(grammar.matcher.deep_copy(), fields, position).to_the_end()
    assert walk is not None
    return json.loads(text + b"".join(fields.tokens.table[token] for token in walk.tokens if token != END))


@pytest.mark.parametrize("options", [[*SENTENCES, SHORT], [SHORT, *SENTENCES], ["", *SENTENCES]])
def test_an_enumerations_shortest_string_needs_no_search(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """A report section quotes one of some fifty sentences: to search for the shortest took 120 ms per schema."""

    def search(_: Walker) -> None:
        pytest.fail("the schema names the strings")

    monkeypatch.setattr(Walker, "_branches", search)
    schema = record(quotes={"type": "array", "items": {"enum": options}, "minItems": 2, "maxItems": 3})
    assert completed(compiler, schema) == {"quotes": [min(options, key=len)] * 2}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"enum": ["considerable", "low"]}]}, "low"),
        ({"anyOf": [{"enum": ["no", "not at all"]}]}, "no"),
        ({"anyOf": [{"enum": ["pq", "paragraphs of the garden"]}]}, "pq"),
        ({"type": "string", "pattern": "^(?:un|unable|understandable things)$"}, "un"),
    ],
)
def test_the_shortest_of_few_is_searched_for_where_the_schema_does_not_tell(
    compiler: GrammarCompiler, schema: object, value: str
) -> None:
    assert completed(compiler, record(a=schema)) == {"a": value}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["🙂🚀🙂", "the garden"]}, "the garden"),
        ({"enum": ["xqzjkv", "paragraph"]}, "paragraph"),
        ({"enum": ["a", "aaaaaaaaaaaaaaaaaaaaaaaaa", "bb"], "minLength": 2}, "bb"),
        ({"enum": ["", "a", "paragraph"], "pattern": "^p"}, "paragraph"),
        ({"enum": ["\x7f", "numbers"]}, "numbers"),
        ({"enum": ["no", {"key": 1}]}, "no"),
    ],
)
def test_the_shortest_string_has_the_fewest_tokens_of_those_that_the_grammar_allows(
    compiler: GrammarCompiler, schema: object, value: str
) -> None:
    """llguidance writes some characters as escapes that JSON does not require, and heeds keywords beside `enum`."""
    assert completed(compiler, record(a=schema)) == {"a": value}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (record(a={"enum": ["x", "yy"]}, b={"enum": ["q", "rr"]}), b'{"a":"x","', {"a": "x", "b": "q"}),
        (record(a={"enum": ["x", {"key": 1}]}), b'{"a":{"', {"a": {"key": 1}}),
        ({"enum": ["x", {"key": 1}]}, b'{"', {"key": 1}),
    ],
)
def test_a_key_is_no_string_of_an_enumeration(
    compiler: GrammarCompiler, schema: object, text: bytes, value: object
) -> None:
    assert completed_after(compiler, schema, text) == value


@pytest.mark.parametrize(
    ("text", "empty"), [('{"a":"', True), ('{"a":"b', False), ('{"', False), ('{"a":""', False), ("[", False)]
)
def test_a_position_tells_whether_its_value_has_begun(text: str, *, empty: bool) -> None:
    position = JsonPosition()
    position.feed(text.encode())
    assert position.value_is_empty == empty


@pytest.mark.parametrize("place", [(), (b"a",), (b"b",), (b"a", 0, b"x"), (7,), (b"c",)])
def test_options_are_those_of_known_enumerations(place: Place) -> None:
    schema = record(
        a={"type": "array", "items": {"enum": ["x", 5, "y"]}}, b={"anyOf": [{"enum": ["z"]}]}, c={"enum": 5}
    )
    fields = TextFields(json.dumps(schema), JsonTokens([b"x"]))
    assert fields.options((b"a", 3)) == ["x", "y"]
    assert fields.options(place) == []


def test_a_text_is_divided_into_the_longest_tokens() -> None:
    tokens = JsonTokens([b"a", b"ab", b"abc", b"c", b"", b"\xc3\xa9"])
    assert tokens.divided(b"ababcca\xc3\xa9") == [1, 2, 3, 0, 5]
    assert tokens.divided(b"abx") == [1]
