"""Masks behind right drafts are those that are found token by token, also where a budget ends the text."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.support.byte_tokenizer import END, VOCAB, byte_compiler
from thothy_ai.engine.grammar.fields import StateKey
from thothy_ai.engine.grammar.json_schema import JsonGrammar

STRING = {"type": "string", "maxLength": 300}
PART = {"a": STRING, "n": {"type": "integer"}}
PARTS = {
    "type": "array",
    "minItems": 1,
    "maxItems": 6,
    "items": {"type": "object", "properties": PART, "required": [*PART], "additionalProperties": False},
}
FIELDS = {"title": {"type": "string", "minLength": 1, "maxLength": 120}, "parts": PARTS, "end": STRING}
SCHEMA = json.dumps({"type": "object", "properties": FIELDS, "required": [*FIELDS], "additionalProperties": False})
COMPILER = byte_compiler()


class Drawn(NamedTuple):
    """The key of a mask, the mask, and the token that was drawn; None where the mask left no choice."""

    key: StateKey | None
    mask: NDArray[np.int32]
    token: int | None


def grammar(budget: int) -> JsonGrammar:
    made = COMPILER.compile(SCHEMA)
    assert isinstance(made, JsonGrammar)
    made.limit(budget)
    force(made)
    return made


def mask(grammar: JsonGrammar) -> NDArray[np.int32]:
    row = torch.zeros(-(-VOCAB // 32), dtype=torch.int32)
    grammar.fill_mask(row)
    return row.numpy().copy()


def force(grammar: JsonGrammar) -> bool:
    forced = [*grammar.forced()]
    for token in forced:
        grammar.advance(token)
    return bool(forced)


def advance(grammar: JsonGrammar, token: int | None) -> None:
    """As the core does with a sample."""
    if token is None:
        force(grammar)
    elif not grammar.extend_field(token):
        grammar.advance(token)
        if not grammar.finished and grammar.may_force_after(token):
            force(grammar)


def prose(rng: random.Random, allowed: Sequence[int], table: Sequence[bytes]) -> int:
    kinds = ((bytes.isalpha, 30.0), (bytes.isspace, 25.0), (bytes.isdigit, 4.0))
    weights = [
        next((weight for holds, weight in kinds if holds(table[token])), {b".": 6.0, b'"': 2.0}.get(table[token], 0.02))
        for token in allowed
    ]
    return rng.choices(allowed, weights)[0]


def written(budget: int, seed: int) -> list[Drawn]:
    """A text that is written without drafts."""
    rng, text, drawn = random.Random(seed), grammar(budget), list[Drawn]()
    while not text.finished:
        key, bits = text.state_key(), mask(text)
        token: int | None = None
        if not (text.choices.lacking(bits[None])[0] and force(text)):
            table = (*text.tokens.table, *[b""] * VOCAB)
            token = prose(rng, [each for each in range(VOCAB) if bits[each >> 5] >> (each & 31) & 1], table)
            if token != END:
                advance(text, token)
        drawn.append(Drawn(key, bits, token))
        if token == END:
            break
    return drawn


@pytest.mark.parametrize("budget", [120, 260, 400])
@pytest.mark.parametrize("seed", range(8))
def test_masks_behind_drafts_are_those_without(budget: int, seed: int) -> None:
    drawn = written(budget, seed)
    text, place, drafted = grammar(budget), 0, 0
    while place < len(drawn):
        chain = [text]
        for each in drawn[place : place + 16]:
            after = None
            if each.token is not None and each.token != END and chain[-1].allows([each.token]):
                after = chain[-1].after(each.token)
            if after is None:
                break
            chain.append(after[0])
        behind = drawn[place : place + len(chain)]
        assert [each.state_key() for each in chain] == [each.key for each in behind]
        for number, (one, other) in enumerate(zip(behind, map(mask, chain), strict=False)):
            assert np.array_equal(one.mask, other), place + number
        drafted += len(chain) - 1
        place += len(chain) - 1
        text = chain[-1]
        if place < len(drawn) and drawn[place].token != END:
            advance(text, drawn[place].token)
        place += 1
    assert drafted
