"""Heads fill a buffer with the logits that they return otherwise, whatever form their weights have."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from thothy_ai.engine.models.layers.embedding import Head, LinearHead, SoftCappedHead
from thothy_ai.engine.models.layers.linear import DenseLinear, PackedLinear

ROWS, HIDDEN, VOCAB = 5, 16, 40
HEADS = (LinearHead, lambda linear: SoftCappedHead(linear, 2.0))


def check(head: Head, hidden: torch.Tensor) -> None:
    buffer = torch.full((ROWS + 2, VOCAB), 9.0, dtype=hidden.dtype)
    head.into(hidden, buffer[:ROWS])
    assert torch.equal(buffer[:ROWS], head(hidden))
    assert (buffer[ROWS:] == 9.0).all()


@pytest.mark.parametrize(("head", "bias"), list(product(HEADS, [False, True])))
def test_dense_weights(head, *, bias: bool) -> None:
    weight = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16)
    layer = DenseLinear(weight, torch.randn(VOCAB, dtype=torch.bfloat16) if bias else None, shared=False)
    check(head(layer), torch.randn(ROWS, HIDDEN, dtype=torch.bfloat16))


@pytest.mark.parametrize("head", HEADS)
def test_other_weights(head) -> None:
    check(head(PackedLinear(torch.randn(VOCAB, HIDDEN), None)), torch.randn(ROWS, HIDDEN))
