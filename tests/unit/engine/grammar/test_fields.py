"""Texts with equal keys continue alike, whatever their schemas; memories forget what was used least recently."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.grammars import compiled
from tests.support.masks import Masks
from thothy_ai.engine.grammar.batch import advance_all
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.fields import StateKey
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.memory import ForcedMemory
from thothy_ai.engine.grammar.position import JsonPosition
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import Context
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary
from thothy_ai.jobs.schema import TEXT

EOS = (0, 2)
VOCAB = 741
WORDS = -(-VOCAB // 32)
KINDS = (trend_summary.KIND, hook.KIND, translation.KIND, report_section.KIND)
SOURCE = "A source of a few words. "


def text(least: int, most: int, characters: str = TEXT) -> dict[str, object]:
    return {"type": "string", "pattern": f"^{characters}{{{least},{most}}}$"}


def fields(**properties: object) -> str:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return json.dumps(schema)


HOSTILE = (  # bounds that a token may reach, escapes, the same field before other ones, few characters, nothing at all
    fields(a=text(1, 3), b=text(3, 3), c=text(0, 2)),
    fields(a=text(1, 3), b=text(2, 5)),
    fields(a=text(0, 9, r"[^\x00-\x08]"), b=text(1, 9, r'["\\\\]')),
    fields(a={"type": "array", "items": text(0, 4), "minItems": 1, "maxItems": 3}, b={"enum": ["x", "yy"]}),
    fields(a={"type": "array", "items": text(0, 4), "maxItems": 2}),
    fields(a={"type": "string", "pattern": "^[A-ZÄ][äöü日本é]{2,6}$"}, b=text(2, 6, "[äöü日本é]")),
    json.dumps(text(0, 5)),
    fields(a={"type": "string", "pattern": "^[^a][b-y]{1,4}$"}, b={"type": "string", "pattern": "^x[b-y]{1,4}$"}),
    fields(a={"type": "string", "pattern": "^[ab][x]{60,60}$"}),
    fields(a={"type": "string", "pattern": "^[ab][x]{40,80}$"}),
    fields(
        a={"enum": ["x", "xy", "é"]},
        e={"const": "k"},
        b={"type": "integer"},
        c={"type": "array", "items": {"enum": [1, "z"]}},
    ),
    fields(a={"type": "array", "items": {"type": "number"}, "maxItems": 9}, b=text(1, 2), c={"type": "boolean"}),
    json.dumps({"anyOf": [json.loads(fields(a={"enum": ["x"]}, b=text(1, 2))), {"enum": ["x", "y"]}]}),
)
UNKNOWN = (
    '{"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{1,9}$"}}}',
    fields(a={"type": "string", "pattern": "^[a-z]{1,9}$", "maxLength": 5}),
    fields(a={"type": "string", "pattern": "^[a-z]+$"}, b={"type": "string", "pattern": "^a{1,2}$"}),
    fields(a={"type": "string", "pattern": "^(?:[a-z]{1,9}|b)$"}),
    fields(a={"type": "string", "maxLength": 9}),
    fields(**{"a\\": {"type": "string", "pattern": "^[a-z]{1,9}$"}}),
)


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS, lexers=2)


def kinds() -> Iterator[str]:
    for kind in KINDS:
        for length in (1, 30):
            request = kind.request(source=SOURCE * length)
            yield from (json.dumps(call.schema) for call in next(kind.plan(request, Context())))


def computed(grammar: JsonGrammar) -> torch.Tensor:
    row = torch.empty(WORDS, dtype=torch.int32)
    grammar.compute(row)
    return row


def allowed(row: torch.Tensor) -> list[int]:
    bits = (row[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    found: list[int] = bits.flatten().nonzero().flatten().tolist()
    return found


def walk(
    grammar: JsonGrammar, draw: random.Random, most: int
) -> Iterator[tuple[StateKey | None, torch.Tensor, list[int]]]:
    """The keys, masks and forced tokens of a random text, which ends its strings more often than chance would."""
    for _ in range(most):
        row = computed(grammar)
        yield grammar.state_key(), row, grammar.matcher.compute_ff_tokens()
        choices = allowed(row)
        special = [t for t in choices if set(grammar.tokens.table[t]) & set(b'"\\')]
        token = draw.choice(special if special and draw.random() < 0.1 else choices)
        if token in EOS:
            return
        grammar.advance(token)


def test_texts_with_equal_keys_go_on_alike(compiler: GrammarCompiler) -> None:
    draw, masks, shared, total = random.Random(0), dict[StateKey, torch.Tensor](), 0, 0
    tokens = dict[tuple[StateKey, int], list[int]]()
    for schema in (*HOSTILE * 12, *UNKNOWN, *kinds(), *kinds()):
        grammar = compiled(compiler, schema)
        for key, row, forced in walk(grammar, draw, 120):
            total += 1
            if key is not None:
                shared += key in masks
                assert torch.equal(masks.setdefault(key, row), row), (schema, key)
            if (key := grammar._state.forced_key(grammar._tokens)) is not None:
                last = grammar._tokens[-1] if grammar._tokens else -1
                assert tokens.setdefault((key, last), forced) == forced, (schema, key)
    assert shared > total / 2
    assert sum(map(bool, tokens.values())) > 100


def test_texts_that_escape_otherwise_have_other_keys(
    compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerFast
) -> None:
    field = {"a": text(1, 40, r"[^\x0a-\x1f]"), "b": text(1, 3)}
    opened = {"o": {"type": "object", "properties": {"k": {"type": "null"}}}}  # its texts escape nothing by number
    found = []
    for schema, begun in ((fields(**field), '{"a":"x\\'), (fields(**opened, **field), '{"o": {},"a": "x\\')):
        grammar = compiled(compiler, schema)
        for token in tokenizer.encode(begun, add_special_tokens=False):
            grammar.advance(token)
        found.append((grammar.state_key(), computed(grammar)))
    assert not torch.equal(found[0][1], found[1][1])
    assert found[0][0] != found[1][0]


def began_a_string(data: bytes) -> bool:
    position = JsonPosition()
    for at in range(len(data)):
        position.feed(data[at : at + 1])
        if position.in_value_string:
            return True
    return False


@pytest.mark.parametrize("schema", UNKNOWN)
def test_after_a_string_of_an_unknown_kind_no_key_is_known(compiler: GrammarCompiler, schema: str) -> None:
    draw, began = random.Random(1), 0
    for _ in range(4):
        grammar = compiled(compiler, schema)
        for key, *_ in walk(grammar, draw, 24):
            data = b"".join(grammar.tokens.table[token] for token in grammar._tokens)
            assert (key is None) == began_a_string(data), data
            began += key is None
    assert began


def test_free_text_between_fields_ends_what_is_known(compiler: GrammarCompiler) -> None:
    grammar = compiled(compiler, fields(a={"type": "array", "items": {"type": "integer"}}, b=text(1, 2)))
    start = grammar.tokens.divided(b'{"a": [')
    for token in start:
        grammar.advance(token)
    (digit, comma), known = (grammar.tokens.divided(sign)[0] for sign in (b"7", b",")), []
    for _ in range(300):
        for token in (digit, comma):
            grammar.advance(token)
        known.append(grammar.state_key() is not None)
    assert known == sorted(known, reverse=True)
    assert (known[0], known[-1]) == (True, False)


@pytest.mark.parametrize("most", [None, 1, 24, 90])
def test_steps_fill_what_llguidance_does_whether_masks_are_remembered_or_not(
    compiler: GrammarCompiler, most: int | None
) -> None:
    """Also of members that begin at the same place, of one that breaks a lexer, and beside rows of others."""
    draw = random.Random(2)
    running = [compiled(compiler, schema) for schema in (*HOSTILE, *HOSTILE, *kinds())]
    masks = Masks(VOCAB, most)
    for _ in range(60):
        mask, _ = masks.fill([(grammar, row + 1) for row, grammar in enumerate(running)], len(running) + 2)
        chosen = []
        for row, grammar in enumerate(running):
            assert torch.equal(mask[row + 1], computed(grammar)), grammar._tokens
            chosen.append((grammar, draw.choice(allowed(mask[row + 1]))))
        chosen = [(grammar, token) for grammar, token in chosen if token not in EOS]
        assert not any(advance_all(chosen))
        running = [grammar for grammar, _ in chosen if not grammar.finished]
        if not running:
            break
    assert 0 < len(masks.memory) <= (most or 10_000)


def test_a_mask_of_a_broken_lexer_is_neither_remembered_nor_shared(compiler: GrammarCompiler) -> None:
    schema = fields(a=text(2, 7, "[b-m]"))
    one, other = compiled(compiler, schema), compiled(compiler, schema)
    for grammar in (one, other):
        for token in grammar.forced():
            grammar.advance(token)
    expected, masks = computed(compiled_at(compiler, schema, one)), Masks(VOCAB)
    one.matcher.consume_token(allowed(~expected)[0])  # which breaks it: its own text, not the lexer
    assert one.matcher.is_error()
    assert torch.equal(masks.of(one, other)[1], expected)
    assert not len(masks.memory)


def compiled_at(compiler: GrammarCompiler, schema: str, like: JsonGrammar) -> JsonGrammar:
    grammar = compiled(compiler, schema)
    for token in like._tokens:
        grammar.advance(token)
    return grammar


def test_forced_tokens_are_remembered_by_state_and_last_token() -> None:
    memory, keys = ForcedMemory(2), [(bytes([n]), 0, 0, 0, b"") for n in range(3)]
    memory.keep(keys[0], 7, [1])
    memory.keep(keys[0], 8, [])
    assert (memory.of(keys[0], 7), memory.of(keys[0], 8), memory.of(keys[0], 9)) == ([1], [], None)
    memory.of(keys[0], 7)
    memory.keep(keys[2], 7, [3])
    memory.keep(keys[2], 8, [3] * 1000)
    assert (memory.of(keys[0], 7), memory.of(keys[0], 8), memory.of(keys[2], 7)) == ([1], None, [3])
