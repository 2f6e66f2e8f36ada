"""Steps are padded to sizes whose kernels are loaded; what they compute stays the same."""

from __future__ import annotations

from itertools import chain

import numpy as np
import torch

from tests.support.arithmetic_model import VOCAB, ArithmeticModel, arithmetic_core, next_token
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import RowUpdates, Step
from thothy_ai.engine.execution.runner import Runner

CONFIG = EngineConfig(block_size=4, num_blocks=20, max_rows=4, token_budget=32, max_context=64)
PROMPTS = [[1], [3, 1, 4, 1, 5], [9, 2, 6]]


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def step(*, samples: list[bool]) -> Step:
    """The prompts, each in two blocks of its own."""
    rows, zeros = column(0, 1, 2), column(0, 0, 0)
    tokens = RowUpdates(rows, zeros, column(*map(len, PROMPTS)), column(*chain(*PROMPTS)))
    blocks = RowUpdates(rows, zeros, column(2, 2, 2), column(1, 2, 3, 4, 5, 6))
    lengths = column(*map(len, PROMPTS))
    return Step(rows, zeros, lengths, np.array(samples), new_tokens=tokens, new_blocks=blocks)


def test_logits_are_computed_for_a_size_of_the_graphs(monkeypatch) -> None:
    computed: list[int] = []
    logits = ArithmeticModel.logits
    monkeypatch.setattr(ArithmeticModel, "logits", lambda self, rows: computed.append(len(rows)) or logits(self, rows))
    runner: Runner = arithmetic_core(CONFIG, lambda _: None)._runner
    for sizes, samples, size in (([], [True] * 3, 3), ([2, 4], [True] * 3, 4), ([2, 4], [False, True, False], 2)):
        runner._decode.graphs._sizes = sizes
        handle = runner.forward(step(samples=samples))
        wanted = [next_token(prompt) for prompt, sampled in zip(PROMPTS, samples, strict=True) if sampled]
        assert handle.scores.logits.shape == (len(wanted), VOCAB)
        assert handle.scores.logits.argmax(-1).tolist() == wanted
        assert handle.scores.positions.tolist() == [
            len(p) for p, sampled in zip(PROMPTS, samples, strict=True) if sampled
        ]
        assert handle.scores.rows.dtype is torch.int64
        assert computed.pop() == size
