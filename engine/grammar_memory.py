"""Masks that were computed before, by what identifies them (`grammar_fields`): a copy instead of a walk of the vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from thothy_ai.engine.grammar_fields import MaskKey

_MASKS = 4_096  # 64 MiB with a vocabulary of 131,072, of which the kernel gives what is used


class MaskMemory:
    """The least recently used masks are forgotten. Used by the core's thread; while another one runs `copy`, this
    one only reads.
    """

    def __init__(self, words: int, masks: int = _MASKS) -> None:
        """A mask has `words` of 32 bits."""
        self._masks = torch.empty((masks, words), dtype=torch.int32)
        self._places: OrderedDict[MaskKey, int] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._places)

    def place_of(self, key: MaskKey) -> int | None:
        """Where the mask is, if it is known."""
        place = self._places.get(key)
        if place is not None:
            self._places.move_to_end(key)
        return place

    def keep(self, key: MaskKey, row: Tensor) -> None:
        """Remember a mask [words] int32."""
        if key in self._places:
            return
        full = len(self._places) == len(self._masks)
        place = self._places.popitem(last=False)[1] if full else len(self._places)
        self._places[key] = place
        self._masks[place] = row

    def copy(self, places: Sequence[int], mask: Tensor) -> None:
        """Write the mask at each place into the row of `mask` [R, words] with the same number; rows are contiguous.

        Without the interpreter's lock.
        """
        torch.index_select(self._masks, 0, torch.tensor(places), out=mask)
