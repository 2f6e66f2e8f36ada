"""Grammar masks that the device keeps, so that a step sends only new ones.

The core decides which mask is kept at which place (`grammar/memory.py`), and sends the places with each step. Applying
a step's masks twice has no further effect.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.step import ANY, MAX_NEW_MASKS, StepMasks, remembered_masks
from thothy_ai.engine.execution.transfers import deliver, send_into

_ALL = -1  # every bit of an int32


class MaskTable:
    """A table with places for all remembered masks, and for one single-step mask per row."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._device = device
        self._table = torch.empty(_shape(max_rows, vocab_size), dtype=torch.int32, device=device)
        self._table[ANY] = _ALL
        self._places = torch.full((max_rows + MAX_NEW_MASKS * max_rows,), ANY, dtype=torch.int32, device=device)
        self._masks = torch.empty(max_rows, self._table.shape[1], dtype=torch.int32, device=device)

    def rows(self, masks: StepMasks) -> Tensor:
        """Store the new masks; returns the members' masks [R, ceil(vocab / 32)] int32 on the device, valid until the
        next step.
        """
        self.send(masks)
        return self.of_step(len(masks.places))

    def send(self, masks: StepMasks) -> None:
        """Store the new masks, and the members' places."""
        sent = send_into(np.concatenate((masks.places, masks.targets)), self._places)
        if len(masks.targets):
            new = deliver(torch.from_numpy(masks.new), self._device)
            self._table.index_copy_(0, sent[-len(masks.targets) :].to(torch.int64), new)

    def of_step(self, size: int) -> Tensor:
        """The masks [size, ceil(vocab / 32)] int32 of the sent step's first members."""
        return torch.index_select(self._table, 0, self._places[:size], out=self._masks[:size])

    @staticmethod
    def num_bytes(max_rows: int, vocab_size: int) -> int:
        """Device bytes of the table, a step's new masks, and the masks of all rows."""
        places, words = _shape(max_rows, vocab_size)
        return 4 * words * (places + (1 + MAX_NEW_MASKS) * max_rows)


def _shape(max_rows: int, vocab_size: int) -> tuple[int, int]:
    return 1 + remembered_masks(vocab_size) + max_rows, -(-vocab_size // 32)
