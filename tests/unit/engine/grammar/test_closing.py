"""No text under a schema is cut off: whatever is chosen of what the masks allow, it ends in time and is valid."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import grammars
from tests.support.json_schemas import matches, pattern_of, record, schemas, text
from tests.support.masks import Masks
from tests.unit.engine.conftest import make_tokenizer
from thothy_ai.engine.api.errors import BudgetTooSmallError
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.tokens import SENTENCE_END
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import schema as fields

EOS = (0, 2)
VOCAB = 741
Choose = Callable[[random.Random, Sequence[int], Sequence[bytes]], int]
COMPILER = GrammarCompiler(core_tokenizer(make_tokenizer()), VOCAB, EOS)


def longest(_: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """Of all tokens the longest."""
    return max(allowed, key=lambda token: (len(table[token]), token))


def anything(rng: random.Random, allowed: Sequence[int], _: Sequence[bytes]) -> int:
    return rng.choice(allowed)


def going_on(rng: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """What neither ends a string, a sentence, an array nor the text; what opens something, if it can."""
    opening = [token for token in allowed if re.search(rb"[,\[{]", table[token])]
    staying = [token for token in allowed if table[token] and not re.search(rb'["}\].!?]', table[token])]
    return rng.choice(opening or staying or allowed) if rng.random() < 0.5 else rng.choice(staying or allowed)


def wordy(rng: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    """Letters and spaces, one byte at a time."""
    return rng.choice([token for token in allowed if len(table[token]) == 1 and table[token].isalpha()] or allowed)


CHOICES: list[Choose] = [longest, anything, going_on, wordy]


spares = st.one_of(st.integers(0, 30), st.integers(0, 400))


def written(grammar: JsonGrammar, budget: int, choose: Choose, rng: random.Random) -> tuple[bytes, bool]:
    """The text, and whether it is complete."""
    table, tokens = grammar.tokens.table, 0
    masks = Masks(VOCAB)
    data = b""
    while tokens < budget and not grammar.finished:
        following = grammar.forced()[: budget - tokens]
        if not following:
            bits = np.unpackbits(masks.of(grammar).numpy().view(np.uint8), bitorder="little")
            following = [choose(rng, np.flatnonzero(bits).tolist(), table)]
        if following[0] in EOS:
            return data, True
        for token in following:
            grammar.advance(token)
        data += b"".join(table[token] for token in following)
        tokens += len(following)
    return data, grammar.finished


def compiled(schema: object) -> JsonGrammar:
    return grammars.compiled(COMPILER, json.dumps(schema))


def shortest(schema: object) -> int:
    outline = compiled(schema)._lexers.outline
    assert outline is not None
    return outline.shortest


@given(schemas, spares, st.sampled_from(CHOICES), st.integers(0, 2**32))
@settings(max_examples=300)
def test_every_text_ends_in_time_and_is_valid(schema: dict[str, Any], spare: int, choose: Choose, seed: int) -> None:
    grammar = compiled(schema)
    budget = shortest(schema) + spare
    grammar.limit(budget)
    data, complete = written(grammar, budget, choose, random.Random(seed))
    assert complete, data
    assert matches(json.loads(data), schema), data


def ending(schema: dict[str, Any], budget: int, choose: Choose, seed: int = 0) -> Any:
    grammar = compiled(schema)
    grammar.limit(budget)
    data, complete = written(grammar, budget, choose, random.Random(seed))
    assert complete
    return json.loads(data)


def writer_of(sentence: str) -> Choose:
    """Writes this sentence again and again, byte by byte, as far as it may."""
    script = itertools.cycle(f"{sentence} ".encode())

    def choose(_: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
        singles = {table[token]: token for token in allowed if len(table[token]) == 1}
        wanted = bytes([next(script)])
        return singles.get(wanted, singles.get(b'"', singles.get(b".", allowed[0])))

    return choose


def test_a_text_ends_with_its_next_sentence() -> None:
    """Far from its hard end, and with whole words."""
    schema = record(body=text(pattern_of(fields.sentences(1, 40, 60))))
    body = ending(schema, 150, writer_of("The garden waits."))["body"]
    assert set(body.removesuffix(".").split(". ")) == {"The garden waits"}
    assert 60 < len(body) < 140


def test_without_a_sentence_s_end_it_ends_with_a_word() -> None:
    body = ending(record(body=text(fields.prose_pattern(1, 900))), 150, writer_of("go to the garden and"))["body"]
    assert "garden and go to the garden and go" in body
    assert body.rstrip(".").endswith((" go", " to", " the", " garden", " and"))
    assert 100 < len(body) < 150


def test_an_array_begins_no_further_item() -> None:
    items = {"type": "array", "items": text("^[a-z]{3,9}$"), "minItems": 2, "maxItems": 400}
    assert len(ending(record(items=items), 60, going_on)["items"]) == 2
    assert len(ending(record(items=items), 400, going_on)["items"]) > 10


def test_early_fields_leave_the_later_ones_their_share() -> None:
    field = text(pattern_of(fields.sentences(1, 9, 400)))
    schema = record(first=field, second=field, third=field)
    value = ending(schema, 500, wordy)
    lengths = [len(value[name]) for name in ("first", "second", "third")]
    assert min(lengths) > 50, lengths


@pytest.mark.parametrize("schema", ['{"type": "integer", "minimum": 5}', '{"type": "string"}', '{"enum": ["a", "ab"]}'])
def test_a_text_that_is_no_object_ends_too(schema: str) -> None:
    for spare in range(6):
        ending(json.loads(schema), shortest(json.loads(schema)) + spare, going_on)


def test_a_limit_that_holds_no_text_is_refused() -> None:
    schema = record(body=text(pattern_of(fields.sentences(2, 4, 60))))
    least = shortest(schema)
    compiled(schema).limit(least)
    with pytest.raises(BudgetTooSmallError, match=f"has {least} tokens; the limit is {least - 1}"):
        compiled(schema).limit(least - 1)


def test_masks_are_the_grammar_s_own_until_the_end_is_near() -> None:
    """What may be sampled, and how likely it is, does not depend on a limit that is far off."""
    schema = record(title=text(pattern_of(fields.title(3, 60))), body=text(pattern_of(fields.sentences(1, 9, 200))))
    masks = Masks(VOCAB)
    rng = random.Random(5)
    table = compiled(schema).tokens.table
    for _ in range(20):
        limited, free = compiled(schema), compiled(schema)
        limited.limit(2000)
        for _ in range(150):
            following = free.forced()
            assert limited.forced() == following
            if not following:
                rows = masks.of(limited, free)
                assert torch.equal(rows[0], rows[1])
                bits = np.unpackbits(rows[0].numpy().view(np.uint8), bitorder="little")
                following = [wordy(rng, np.flatnonzero(bits).tolist(), table)]
            for token in following:
                limited.advance(token)
                free.advance(token)


def test_a_text_that_is_far_from_its_end_is_not_looked_at() -> None:
    grammar = compiled(record(body=text(fields.prose_pattern(1, 4000))))
    grammar.limit(3000)
    row = torch.empty(-(-VOCAB // 32), dtype=torch.int32)
    grammar.fill_mask(row)
    assert not grammar.closes


def test_a_lexer_that_breaks_is_no_way_past_the_limit() -> None:
    """The text continues on another lexer, and ends in time."""
    schema = record(body=text(pattern_of(fields.sentences(1, 9, 200))))
    grammar = compiled(schema)
    grammar.limit(80)
    tokens = 0
    broke = False
    rng = random.Random(2)
    masks = Masks(VOCAB)
    while not grammar.finished:
        following = grammar.forced()
        if not following:
            if tokens > 40 and not broke:
                broke = _moved(grammar)
            bits = np.unpackbits(masks.of(grammar).numpy().view(np.uint8), bitorder="little")
            following = [wordy(rng, np.flatnonzero(bits).tolist(), grammar.tokens.table)]
        for token in following:
            grammar.advance(token)
        tokens += len(following)
    assert broke
    assert tokens <= 80


def field(**keywords: Any) -> dict[str, Any]:
    return record(a={"type": "string", **keywords}, b={"type": "integer"})


UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
TIMES = {name: {"type": "string", "format": "date-time"} for name in "abc"}
ENDING: dict[str, dict[str, Any]] = {
    **{name: field(format=name) for name in ("email", "uri", "ipv6", "duration", "date-time", "time", "uuid")},
    **{
        pattern: field(pattern=pattern)
        for pattern in (
            r"\.pdf$",
            "[0-9]",
            r"\d{4}",
            "^.+ (GmbH|AG)$",
            "^[A-Z]{2,10}-[0-9]+$",
            "^a|b$",
            "^[a-z]{90,99}Q$",
        )
    },
    "short email": field(format="email", maxLength=20),
    "lengths": field(pattern="^[a-z ]+$", minLength=20, maxLength=30),
    "above": record(name={"type": "string"}, price={"type": "number", "exclusiveMinimum": 0}),
    "between": record(a={"type": "number", "minimum": -2.5, "maximum": 2.75}),
    "multiples": record(a={"type": "integer", "multipleOf": 7, "minimum": 20}),
    "keys": {
        "type": "object",
        "patternProperties": {"^x_[a-z]+$": {"type": "integer", "minimum": 5}},
        "additionalProperties": False,
    },
    "unanchored keys": {
        "type": "object",
        "patternProperties": {"_id": {"type": "integer"}},
        "additionalProperties": False,
    },
    "long": {"type": "array", "items": {"type": "integer"}, "minItems": 25},
    "many": record(**{f"field_{number}": {"type": "integer"} for number in range(20)}),
    "numbers": {"enum": [100000000000, 2]},
    "choice": {"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 5}, record(a={"type": "null"})]},
    "open": {"type": "object", "properties": TIMES, "required": ["b"]},
    "optional": {"type": "object", "properties": TIMES, "additionalProperties": False},
    "list": {"type": "array", "items": text(UUID)},
    "tree": {
        "$defs": {
            "node": record(value={"type": "integer"}, nodes={"type": "array", "items": {"$ref": "#/$defs/node"}}),
        },
        "$ref": "#/$defs/node",
    },
    "together": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"a": {"minLength": 3}, "b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    "anything": {},
    "number": {"type": "number"},
}


@pytest.mark.parametrize("name", ENDING)
def test_texts_of_any_keyword_end_in_time(name: str) -> None:
    """None is cut off and none is refused for its limit, however much the text needs beyond its shortest."""
    least = shortest(ENDING[name])
    for draw, (spare, choose) in enumerate(itertools.product((0, 1, 4, 9, 30, 90), CHOICES)):
        grammar = compiled(ENDING[name])
        grammar.limit(least + spare)
        data, complete = written(grammar, least + spare, choose, random.Random(draw))
        assert complete, data
        json.loads(data)


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        ({"enum": [100000000000, 2]}, 1),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 50}, {"type": "null"}]}, 4),
        (field(pattern="^[A-Z]{2,10}-[0-9]+$"), 18),
        (field(format="email", maxLength=40), 16),
    ],
)
def test_what_fits_is_not_refused(schema: dict[str, Any], most: int) -> None:
    compiled(schema).limit(most)
    ending(schema, most, longest)


def test_the_string_of_fewest_tokens_counts_and_not_the_shortest() -> None:
    schema = record(a=text("^(?:xqzjkv|paragraph)$"))
    assert shortest(schema) == shortest(record(a={"const": "paragraph"})) < shortest(record(a={"const": "xqzjkv"}))


@pytest.mark.parametrize("name", ["date", "time", "date-time"])
def test_a_date_that_is_ended_for_its_writer_is_one_that_libraries_read(name: str) -> None:
    readers = {"date": date.fromisoformat, "time": time.fromisoformat, "date-time": datetime.fromisoformat}
    schema = record(a={"type": "string", "format": name})
    least = shortest(schema)
    for draw in range(30):
        readers[name](ending(schema, least + draw // 3, anything, draw)["a"])


def _moved(grammar: JsonGrammar) -> bool:
    """Have it continue on a lexer of its own, as after a break."""
    before = grammar.lexer
    grammar.lexer = grammar._lexers.alone()
    grammar._matcher = grammar.lexer.copy(grammar)
    assert grammar.matcher.consume_tokens(grammar._tokens)
    return grammar.lexer is not before


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        ("It rains.", True),
        ("It rains?”", True),
        ("Es regnet.«", True),
        ("下雨。", True),
        ("真的？」", True),
        ("It costs 2.", False),
        ("the U.", False),
        ("It ends with OK.", True),
        ("It rains", False),
        ("rain, ", False),
    ],
)
def test_sentence_ends(data: str, ends: bool) -> None:
    assert (SENTENCE_END.search(data.encode()[-8:]) is not None) == ends


def test_a_decimal_point_is_no_end() -> None:
    """After it, a number may continue; a text may end, but begin no other sentence."""
    schema = record(body=text(pattern_of(fields.sentences(1, 40, 60))))
    body = ending(schema, 120, writer_of("It costs 2.50 or 3.75 in all."))["body"]
    assert set(body.removesuffix(".").split(". ")) == {"It costs 2.50 or 3.75 in all"}


@pytest.mark.parametrize("sentence", ["He said: “I go.”", "Er sagt: »Ich gehe.«", 'He said: "I go."'])
def test_a_sentence_ends_with_its_quotation_mark(sentence: str) -> None:
    """A writer that closes its quotation is not cut off before it."""
    said = sentence.replace('"', '\\"')
    value = ending(record(body=text("^[^\\x00-\\x1f]{1,900}$")), 120, writer_of(said))["body"]
    assert value.endswith(sentence[-3:])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["a very long enumeration of many words", "no"]}, "no"),
        ({"enum": ["considerable", "medium", "high confidence", "low"]}, "low"),
        ({"anyOf": [{"type": "string", "minLength": 40}, {"type": "null"}]}, None),
        ({"anyOf": [record(b={"type": "string", "minLength": 40}), {"type": "null"}]}, None),
    ],
)
def test_the_shortest_of_several_choices_decides_whether_a_limit_holds_a_text(schema: Any, value: Any) -> None:
    least = shortest(record(a=schema))
    assert least <= 9
    assert ending(record(a=schema), least, longest) == {"a": value}
