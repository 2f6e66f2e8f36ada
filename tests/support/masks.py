"""Masks of grammars as a step's members get them: by way of the memory and of the device's table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.step import ANY, StepMasks, remembered_masks
from thothy_ai.engine.execution.mask_table import MaskTable
from thothy_ai.engine.grammar.batch import start_filling
from thothy_ai.engine.grammar.compiler import Grammar
from thothy_ai.engine.grammar.memory import MaskMemory, RowMasks

_ROWS = 64


class Masks:
    """A core's memory of masks, and a runner's table on `device`. `new`: masks that the last step brought."""

    def __init__(self, vocab_size: int, most: int | None = None, device: str = "cpu", rows: int = _ROWS) -> None:
        self.memory = MaskMemory(vocab_size, most)
        self._table = MaskTable(rows, vocab_size, torch.device(device))
        self.new = 0

    def fill(self, grammars: Sequence[tuple[Grammar, int]], rows: int) -> tuple[Tensor, list[int]]:
        """Masks of a step of so many rows, on the CPU, and the rows that leave no choice. They are sampled twice."""
        masks = RowMasks(rows, self.memory)
        lacking = start_filling(masks, grammars).wait()
        step = masks.of_step()
        self.new = len(step.targets)
        first, again = self._table.rows(step).clone().cpu(), self._table.rows(step).clone().cpu()
        assert torch.equal(first, again)
        return again, lacking

    def of(self, *grammars: Grammar) -> Tensor:
        """Masks of a step of these."""
        return self.fill([(grammar, row) for row, grammar in enumerate(grammars)], len(grammars))[0]


def check_table(device: str) -> None:
    """Rows of random steps are those of a table that is a list; a step that is applied twice changes nothing."""
    draw, rows, vocab = np.random.default_rng(3), 9, 1000
    most, words = remembered_masks(vocab), -(-vocab // 32)
    table = MaskTable(rows, vocab, torch.device(device))
    known = {ANY: np.full(words, -1, np.int32)}
    for _ in range(50):
        kept = draw.choice(np.arange(1, 30), draw.integers(0, 6), replace=False)
        own = 1 + most + np.arange(draw.integers(0, rows + 1))
        targets = np.concatenate((kept, own)).astype(np.int32)
        new = draw.integers(-(2**31), 2**31, (len(targets), words)).astype(np.int32)
        known.update(zip(targets.tolist(), new, strict=True))
        places = draw.choice([*known], draw.integers(1, rows + 1)).astype(np.int32)
        for _ in range(2):
            found = table.rows(StepMasks(places, new, targets)).cpu().numpy()
            assert (found == np.stack([known[place] for place in places.tolist()])).all()
