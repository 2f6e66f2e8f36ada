"""No text under a schema is cut off: whatever is chosen of what the masks allow, it ends in time and is valid."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.unit.engine.conftest import make_tokenizer
from thothy_ai.engine.errors import BudgetTooSmallError
from thothy_ai.engine.grammar import GrammarCompiler
from thothy_ai.engine.grammar_batch import start_filling
from thothy_ai.engine.grammar_lexers import JsonGrammar
from thothy_ai.jobs import schema as fields

EOS = (0, 2)
VOCAB = 741
Choose = Callable[[random.Random, Sequence[int], Sequence[bytes]], int]
COMPILER = GrammarCompiler(make_tokenizer(), VOCAB, EOS)

# ---- what is chosen


def longest(_: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """Of all tokens the longest."""
    return max(allowed, key=lambda token: (len(table[token]), token))


def anything(rng: random.Random, allowed: Sequence[int], _: Sequence[bytes]) -> int:
    return rng.choice(allowed)


def going_on(rng: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """What neither ends a string, a sentence, an array nor the text; what opens something, if it can."""
    opening = [token for token in allowed if re.search(rb'[,\[{]', table[token])]
    staying = [token for token in allowed if table[token] and not re.search(rb'["}\].!?]', table[token])]
    return rng.choice(opening or staying or allowed) if rng.random() < 0.5 else rng.choice(staying or allowed)


def wordy(rng: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """Letters and spaces, one byte at a time."""
    return rng.choice([token for token in allowed if len(table[token]) == 1 and table[token].isalpha()] or allowed)


CHOICES: list[Choose] = [longest, anything, going_on, wordy]

# ---- what is asked for


def pattern_of(field: Any) -> str:
    return str(_extra(field)["pattern"])


def _extra(field: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"minLength": 0, "maxLength": 0}
    field.json_schema_extra(schema)
    return schema


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


sizes = st.tuples(st.integers(1, 30), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair)))
strings = st.one_of(
    sizes.map(lambda size: text(fields.prose_pattern(*size))),
    sizes.map(lambda size: text(pattern_of(fields.title(size[0] + 3, size[1] + 3)))),
    st.builds(
        lambda least, more, size: text(pattern_of(fields.sentences(least, least + more, size))),
        st.integers(1, 2),
        st.integers(0, 3),
        st.integers(12, 60),
    ),
    st.sampled_from(["^[а-я]{3,20}$", "^(?:ab|c{9}(?:d{5})?)(?:e{4}f)*$", "^[0-9]{2}(?:\\.[0-9]{4})?$", "^[^a]{1,9}$"]).map(text),
    sizes.map(lambda size: {"type": "string", "minLength": size[0], "maxLength": size[1]}),
    st.just({"type": "string"}),
)
leaves = st.one_of(
    strings,
    st.lists(st.text("abcü. \"", min_size=1, max_size=12), min_size=1, max_size=4, unique=True).map(lambda of: {"enum": of}),
    st.sampled_from([{"const": "the same, always."}, {"type": "boolean"}, {"type": "null"}, {"type": "number"}]),
    st.builds(lambda least, more: {"type": "integer", "minimum": least, "maximum": least + more}, st.integers(-20, 3000), st.integers(0, 5000)),
)


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "body", "key_points", "ü", 'q"'])
    return st.dictionaries(names, children, min_size=1, max_size=4).map(
        lambda properties: {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    )


def arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.builds(lambda items, count: {"type": "array", "items": items, "minItems": count[0], "maxItems": max(1, sum(count))}, children, counts)


schemas = objects(st.recursive(leaves, lambda children: objects(children) | arrays(children), max_leaves=6))
spares = st.one_of(st.integers(0, 30), st.integers(0, 400))


def written(grammar: JsonGrammar, budget: int, choose: Choose, rng: random.Random) -> tuple[bytes, bool]:
    """The text, and whether it is complete."""
    table, tokens = grammar._lexers.tokens.table, 0
    row = torch.empty((1, -(-VOCAB // 32)), dtype=torch.int32)
    data = b""
    while tokens < budget and not grammar.finished:
        following = grammar.forced()[: budget - tokens]
        if not following:
            start_filling(row, [(grammar, 0)]).wait()
            bits = np.unpackbits(row.numpy().view(np.uint8), bitorder="little")
            following = [choose(rng, np.flatnonzero(bits).tolist(), table)]
        if following[0] in EOS:
            return data, True
        for token in following:
            grammar.advance(token)
        data += b"".join(table[token] for token in following)
        tokens += len(following)
    return data, grammar.finished


def compiled(schema: object) -> JsonGrammar:
    grammar = COMPILER.compile(json.dumps(schema))
    assert isinstance(grammar, JsonGrammar)
    return grammar


def shortest(schema: object) -> int:
    completion = compiled(schema)._lexers.completion
    assert completion is not None
    return completion.shortest


def matches(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the value is one of the schema's, for the schemas of this test."""
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    match schema["type"]:
        case "object":
            return list(value) == list(schema["properties"]) and all(
                matches(value[name], child) for name, child in schema["properties"].items()
            )
        case "array":
            return schema["minItems"] <= len(value) <= schema["maxItems"] and all(matches(one, schema["items"]) for one in value)
        case "string":
            least, most = schema.get("minLength", 0), schema.get("maxLength", 10**9)
            return least <= len(value) <= most and re.search(schema.get("pattern", ""), value) is not None
        case "integer":
            return schema["minimum"] <= value <= schema["maximum"]
        case "number":
            return isinstance(value, int | float)
        case "boolean":
            return isinstance(value, bool)
    return value is None


@given(schemas, spares, st.sampled_from(CHOICES), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_every_text_ends_in_time_and_is_valid(schema: dict[str, Any], spare: int, choose: Choose, seed: int) -> None:
    grammar = compiled(schema)
    budget = shortest(schema) + spare
    grammar.limit(budget)
    data, complete = written(grammar, budget, choose, random.Random(seed))
    assert complete, data
    assert matches(json.loads(data), schema), data
