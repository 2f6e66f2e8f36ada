"""Masks that were computed before, by what identifies them (`grammar_fields`): a copy takes 2 us, not 40 to 1,500."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from thothy_ai.engine.grammar_fields import MaskKey

_MASKS = 4_096  # 64 MiB for a vocabulary of 131,072, 128 MiB for 262,144; pages that are never written cost nothing


class MaskMemory:
    """The least recently used masks are forgotten. Used by the core's thread; while another one runs `copy`, this
    one only reads.
    """

    def __init__(self, words: int, masks: int = _MASKS) -> None:
        """A mask has `words` of 32 bits."""
        self._masks = np.empty((masks + 1, words), np.int32)
        self._places: OrderedDict[MaskKey, int] = OrderedDict()  # from 1 on, least recently used first

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
        full = len(self._places) + 1 == len(self._masks)
        place = self._places.popitem(last=False)[1] if full else len(self._places) + 1
        self._places[key] = place
        self._masks[place] = row.numpy()

    def copy(self, places: Sequence[int], mask: Tensor) -> None:
        """Write the mask at each place into the row of `mask` [R, words] with the same number; 0 is any mask.

        Without the interpreter's lock.
        """
        np.take(self._masks, places, axis=0, out=mask.numpy(), mode="clip")  # with another mode it copies twice
