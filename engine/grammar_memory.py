"""Masks and forced tokens that were found before, by the state of the text (`grammar_fields`).

To copy a mask takes 2 us, to compute one 40 to 1,500; to find what is forced 20 and more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.grammar_fields import StateKey

_MASKS = 4_096  # 64 MiB for a vocabulary of 131,072, 128 MiB for 262,144; pages that are never written cost nothing
_FORCED, _LONGEST_FORCED = 4_096, 64  # sequences, and tokens of one


class MaskMemory:
    """The least recently used masks are forgotten. Used by the core's thread; while another one runs `copy`, this
    one only reads.
    """

    def __init__(self, words: int, masks: int = _MASKS) -> None:
        """A mask has `words` of 32 bits."""
        self._masks = np.empty((masks + 1, words), np.int32)
        self._lacking = np.zeros(masks + 1, np.bool_)
        self._places: OrderedDict[StateKey, int] = OrderedDict()  # from 1 on, least recently used first

    def __len__(self) -> int:
        return len(self._places)

    def place_of(self, key: StateKey) -> int | None:
        """Where the mask is, if it is known."""
        place = self._places.get(key)
        if place is not None:
            self._places.move_to_end(key)
        return place

    def keep(self, key: StateKey, mask: NDArray[np.int32], *, lacking: bool) -> None:
        """Remember a mask [words], and whether it is one that leaves no choice."""
        if key in self._places:
            return
        full = len(self._places) + 1 == len(self._masks)
        place = self._places.popitem(last=False)[1] if full else len(self._places) + 1
        self._places[key] = place
        self._masks[place], self._lacking[place] = mask, lacking

    def copy(self, places: Sequence[int], mask: NDArray[np.int32]) -> None:
        """Write the mask at each place into the row of `mask` [R, words] with the same number; 0 is any mask.

        Without the interpreter's lock.
        """
        np.take(self._masks, places, axis=0, out=mask, mode="clip")  # with another mode it copies twice

    def lacking(self, places: Sequence[int]) -> NDArray[np.intp]:
        """Which of these masks leave no choice, as indices of `places`; 0 is none of them."""
        return np.flatnonzero(self._lacking[places])


class ForcedMemory:
    """The tokens that are forced, perhaps none, in a state and after a token: llguidance divides forced bytes as the
    tokenizer would behind it. Those used least recently are forgotten. Used by the core's thread.
    """

    def __init__(self, most: int = _FORCED) -> None:
        self._most = most
        self._tokens: OrderedDict[tuple[StateKey, int], Sequence[int]] = OrderedDict()

    def of(self, key: StateKey, last: int) -> Sequence[int] | None:
        """What is forced there, if it is known."""
        tokens = self._tokens.get((key, last))
        if tokens is not None:
            self._tokens.move_to_end((key, last))
        return tokens

    def keep(self, key: StateKey, last: int, tokens: Sequence[int]) -> None:
        """Remember what is forced there, unless it is long."""
        if len(tokens) > _LONGEST_FORCED:
            return
        self._tokens[key, last] = tokens
        if len(self._tokens) > self._most:
            self._tokens.popitem(last=False)
