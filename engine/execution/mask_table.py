"""The masks of grammars that are remembered on the device, so that a step brings only those that are new.

The core decides what is kept at which place (`grammar_memory`), and tells with each step. To apply a step's masks once
more changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.execution.transfers import deliver, send
from thothy_ai.engine.step import ANY, StepMasks, remembered_masks

_ALL = -1  # every bit of an int32


class MaskTable:
    """Places for all remembered masks, and for as many of a single step as there are rows."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._device = device
        self._table = torch.empty(_shape(max_rows, vocab_size), dtype=torch.int32, device=device)
        self._table[ANY] = _ALL

    def rows(self, masks: StepMasks) -> Tensor:
        """Put the new ones in their places; returns each member's [R, ceil(vocab / 32)] int32 on the device."""
        count = len(masks.targets)
        places = send(np.concatenate((masks.targets, masks.places)), self._device)
        if count:
            new = deliver(torch.from_numpy(masks.new), self._device)
            self._table.index_copy_(0, places[:count].to(torch.int64), new)
        return self._table.index_select(0, places[count:])

    @staticmethod
    def num_bytes(max_rows: int, vocab_size: int) -> int:
        """Bytes of the table, of a step's new masks (two per row at most: one kept, one its own), and of all rows'."""
        places, words = _shape(max_rows, vocab_size)
        return 4 * words * (places + 3 * max_rows)


def _shape(max_rows: int, vocab_size: int) -> tuple[int, int]:
    return 1 + remembered_masks(vocab_size) + max_rows, -(-vocab_size // 32)
