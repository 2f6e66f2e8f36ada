"""Masks by way of the table on a GPU are those that llguidance computes: remembered, forgotten and replaced."""

from __future__ import annotations

import importlib.util
import random

import pytest
import torch

from tests.support.byte_tokenizer import VOCAB, schema_grammar
from tests.support.masks import Masks, check_table

pytestmark = pytest.mark.gpu


def test_members_get_the_masks_that_were_last_written_to_their_places() -> None:
    check_table("cuda:0")


@pytest.mark.skipif(importlib.util.find_spec("llguidance") is None, reason="llguidance is not installed here")
@pytest.mark.parametrize("most", [None, 1, 5])
def test_steps_have_the_masks_that_llguidance_computes(most: int | None) -> None:
    draw, running, masks = random.Random(4), [schema_grammar() for _ in range(12)], Masks(VOCAB, most, "cuda:0")
    while running:
        for row, grammar in zip(masks.of(*running), running, strict=True):
            alone = torch.empty_like(row)
            grammar.fill_mask(alone)
            assert torch.equal(row, alone)
            bits = (alone[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
            grammar.advance(draw.choice(bits.flatten().nonzero().flatten().tolist()))
        running = [grammar for grammar in running if not grammar.finished]
