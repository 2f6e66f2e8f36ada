"""Grammars over a real tokenizer: masks that keep a random walk inside the schema, forced tokens, typed refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.support.masks import Masks
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.grammar.tokens import CoreTokenizer
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.engine.text.token_bytes import token_bytes

EOS = (0, 2)
VOCAB = 741  # more than the tokenizer has, and no multiple of 32, as models do
SCHEMA = {
    "type": "object",
    "properties": {
        "headline": {"type": "string", "minLength": 3, "maxLength": 30, "pattern": "^[a-z ]+$"},
        "points": {"type": "array", "items": {"enum": ["one", "two"]}, "minItems": 1, "maxItems": 3},
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
        "sure": {"type": "boolean"},
    },
    "required": ["headline", "points", "count", "sure"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS)


def allowed(grammar: Grammar) -> list[int]:
    row = torch.zeros(-(-VOCAB // 32), dtype=torch.int32)
    grammar.fill_mask(row)
    bits = (row[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    return bits.flatten().nonzero().flatten().tolist()


def walk(grammar: Grammar, rng: random.Random) -> tuple[list[int], int]:
    """Random allowed tokens until the grammar is finished; how many of them were forced."""
    tokens: list[int] = []
    forced = 0
    while not grammar.finished:
        following = grammar.forced()
        forced += len(following)
        following = following or [rng.choice([token for token in allowed(grammar) if token not in EOS])]
        for token in following:
            grammar.advance(token)
        tokens += following
    return tokens, forced


@pytest.mark.parametrize("seed", range(5))
def test_a_random_walk_is_an_instance_of_the_schema(
    compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerFast, seed: int
) -> None:
    tokens, forced = walk(compiler.compile(json.dumps(SCHEMA)), random.Random(seed))
    text = tokenizer.decode(tokens)
    value = json.loads(text)
    assert list(value) == list(SCHEMA["properties"])
    assert 3 <= len(value["headline"]) <= 30
    assert 1 <= value["count"] <= 20
    assert text == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert forced >= 12, "keys and separators are forced"


def with_added(tokenizer: PreTrainedTokenizerFast) -> CoreTokenizer:
    """With added tokens at its end, as fine-tuned models have them."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.add_special_tokens(["<pad>", "<image>"])
    backend.add_tokens(['{"'])
    return CoreTokenizer(backend.to_str())


def as_unigram(tokenizer: PreTrainedTokenizerFast) -> CoreTokenizer:
    ids = tokenizer.get_vocab()
    pieces = [(token, -1.0) for token in sorted(ids, key=ids.__getitem__)]
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    return CoreTokenizer(json.dumps(content))


def with_old_merges(tokenizer: PreTrainedTokenizerFast) -> CoreTokenizer:
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    return CoreTokenizer(json.dumps(content))


@pytest.mark.parametrize("make", [with_added, as_unigram, with_old_merges, core_tokenizer])
@pytest.mark.parametrize("more", [3, 1, 0, -1, -64, -150])
def test_a_tokenizer_may_have_more_tokens_than_the_logits(
    make: Callable[[PreTrainedTokenizerFast], CoreTokenizer], more: int, tokenizer: PreTrainedTokenizerFast
) -> None:
    size = len(tokenizer) + more
    grammar = GrammarCompiler(make(tokenizer), size, EOS).compile(json.dumps(SCHEMA))
    tokens: list[int] = []
    rng = random.Random(more)
    while not grammar.finished:
        following = grammar.forced()
        if not following:
            row = torch.zeros(-(-size // 32), dtype=torch.int32)
            grammar.fill_mask(row)
            bits = (row[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
            following = [rng.choice(bits.flatten().nonzero().flatten().tolist())]
        for token in following:
            grammar.advance(token)
        tokens += following
    assert max(tokens) < size
    table = token_bytes(Tokenizer.from_str(make(tokenizer).definition)).table
    assert 1 <= json.loads(b"".join(table[token] for token in tokens))["count"] <= 20


def test_forced_tokens_are_the_only_allowed_ones(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json.dumps(SCHEMA))
    forced = grammar.forced()
    assert len(forced) > 1
    for token in forced:
        assert token in allowed(grammar)
        grammar.advance(token)
    assert grammar.forced() == []


def test_end_of_text_only_where_the_value_may_end(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile('{"type": "integer", "minimum": 1, "maximum": 100}')
    digit = next(token for token in allowed(grammar) if token not in EOS)
    assert not set(EOS) & set(allowed(grammar))
    grammar.advance(digit)
    assert set(EOS) <= set(allowed(grammar))
    assert not grammar.finished


def test_ids_beyond_the_tokenizer_are_never_allowed(
    compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerFast
) -> None:
    grammar = compiler.compile('{"type": "string"}')
    grammar.advance(tokenizer.convert_tokens_to_ids('"'))
    assert max(allowed(grammar)) < len(tokenizer) < VOCAB


def test_grammars_of_one_schema_are_apart(compiler: GrammarCompiler) -> None:
    schema = json.dumps(SCHEMA)
    first, second = compiler.compile(schema), compiler.compile(schema)
    for token in first.forced():
        first.advance(token)
    assert second.forced()


def test_a_schema_may_come_as_often_as_it_likes(compiler: GrammarCompiler) -> None:
    schema = '{"type":"object","properties":{"only":{"type":"boolean"}},"required":["only"]}'
    expected = walk(compiler.compile(schema), random.Random(1))
    assert all(walk(compiler.compile(schema), random.Random(1)) == expected for _ in range(1100))


def test_many_schemas_do_not_push_each_other_out_of_shape(compiler: GrammarCompiler) -> None:
    schemas = [json.dumps({"const": f"word {number}"}) for number in range(150)]
    for schema in [*schemas, *schemas]:
        tokens, _ = walk(compiler.compile(schema), random.Random(0))
        assert tokens == walk(compiler.compile(schema), random.Random(5))[0]


def test_a_broken_grammar_leaves_its_siblings_whole(compiler: GrammarCompiler) -> None:
    schema = json.dumps(SCHEMA)
    broken, whole = compiler.compile(schema), compiler.compile(schema)
    with pytest.raises(GrammarError):
        broken.advance(next(token for token in range(3, 300) if token not in allowed(broken)))
    walk(whole, random.Random(3))
    walk(compiler.compile(schema), random.Random(3))


def test_a_wrong_token_is_an_error_of_this_grammar(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(json.dumps(SCHEMA))
    wrong = next(token for token in range(3, 300) if token not in allowed(grammar))
    with pytest.raises(GrammarError, match="cannot be taken here"):
        grammar.advance(wrong)
    assert not grammar.finished
    assert not set(EOS) & set(allowed(grammar)), "a broken grammar must not look complete"
    with pytest.raises(GrammarError):
        grammar.advance(3)


class Only:
    """A grammar that is no schema's."""

    finished = False

    def __init__(self, token: int) -> None:
        self._token = token

    def fill_mask(self, row: Tensor) -> None:
        row.zero_()
        row[self._token // 32] = 1 << self._token % 32

    def limit(self, budget: int) -> None:
        pass

    def may_force_after(self, token: int) -> bool:
        return True

    def forced(self) -> list[int]:
        return [self._token]

    def advance(self, token: int) -> None:
        assert token == self._token


@pytest.mark.parametrize("schemas", [1, 5])
def test_masks_filled_together_are_those_filled_one_by_one(compiler: GrammarCompiler, schemas: int) -> None:
    rng = random.Random(7)
    grammars = []
    for index in range(40):
        grammar = compiler.compile(json.dumps(SCHEMA | {"title": str(index % schemas)}))
        for _ in range(rng.randrange(12)):
            following = grammar.forced() or [rng.choice([token for token in allowed(grammar) if token not in EOS])]
            for token in following:
                grammar.advance(token)
        grammars.append(grammar)
    broken = grammars[3]
    with pytest.raises(GrammarError):
        broken.advance(next(token for token in range(3, 300) if token not in allowed(broken)))
    grammars[5] = Only(40)
    mask, _ = Masks(VOCAB).fill([(grammar, row + 1) for row, grammar in enumerate(grammars)], 42)
    for row, grammar in zip(mask[1:-1], grammars, strict=True):
        alone = torch.zeros_like(row)
        grammar.fill_mask(alone)
        assert torch.equal(row, alone)
    assert (mask[[0, -1]] == -1).all(), "rows without a grammar may have any token"
    assert not set(EOS) & set(allowed(broken))
    with pytest.raises(GrammarError):
        broken.advance(3)


def test_a_mask_writes_its_row_only(compiler: GrammarCompiler) -> None:
    mask: Tensor = torch.full((3, -(-VOCAB // 32)), 7, dtype=torch.int32)
    compiler.compile(json.dumps(SCHEMA)).fill_mask(mask[1])
    assert (mask[0] == 7).all()
    assert (mask[2] == 7).all()
    assert not (mask[1] == 7).all()


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "not json",
        "[1]",
        "true",
        '"text"',
        '{"type": "colour"}',
        '{"type": "string", "pattern": "["}',
        '{"type": "string", "pattern": "(?=a)b"}',
        '{"not": {"type": "string"}}',
        '{"$ref": "#/nowhere"}',
        '{"$ref": "https://example.com/schema.json"}',
        '{"enum": []}',
        '{"type": "integer", "minimum": 5, "maximum": 3}',
        '{"const": "\\ud800"}',
        '{"const": "\ud800"}',
    ],
)
def test_what_is_no_usable_schema_is_a_grammar_error(compiler: GrammarCompiler, schema: str) -> None:
    with pytest.raises(GrammarError) as caught:
        compiler.compile(schema)
    assert "\n" not in str(caught.value)


def test_a_schema_that_forces_endless_text_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(GrammarError, match="too many"):
        compiler.compile('{"type": "string", "pattern": "^((((a{1000}){1000}){1000}){1000}){1000}$"}')
    assert compiler.compile("{}").forced() == []
