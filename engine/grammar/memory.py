"""Remembers masks and forced tokens by the key of the text's state (`fields.py`).

To compute a mask takes 40 to 1,500 us, and to find forced tokens at least 20. Masks are kept on the device, and the
core knows their places; the host keeps only masks from which others can be derived.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from thothy_ai.engine.api.step import ANY, MAX_NEW_MASKS, StepMasks, remembered_masks
from thothy_ai.engine.grammar.fields import StateKey, room_of
from thothy_ai.engine.grammar.tokens import Bits, JsonTokens, allow_only, allowed_tokens

_SEVERAL = -1
_WIDEST = 256  # fields; 4 MiB for a vocabulary of 131,072
_FORGOTTEN = 64  # a 64th of all masks is forgotten at once
_FORCED, _MAX_FORCED = 4_096, 64  # sequences, and tokens per sequence


class MaskMemory:
    """The core's record of the masks in the device's table, and of their places. Used by the core's thread.

    The least recently used masks are forgotten, except those of the current step. `masks`: their maximum, by default
    the number that the device keeps.
    """

    def __init__(self, vocab_size: int, masks: int | None = None) -> None:
        self.words = -(-vocab_size // 32)  # of a mask
        self._most = masks or remembered_masks(vocab_size)
        self.first_unkept = 1 + remembered_masks(vocab_size)  # first place of masks for the current step only
        self._places: dict[StateKey, int] = {}
        self._keys: dict[int, StateKey] = {}  # by place
        self._lacking = np.zeros(self._most + 1, np.bool_)
        self._only = [_SEVERAL] * (self._most + 1)  # by place: the only allowed token
        self._used = np.zeros(self._most + 1, np.int64)  # by place: the last step that used it
        self._free: list[int] = [*range(self._most, ANY, -1)]
        self._step = 0
        self._widest: OrderedDict[bytes, tuple[int, Bits]] = OrderedDict()  # by field: the most room, its mask
        self.place_of: Callable[[StateKey], int | None] = self._places.get  # place of a remembered mask

    def __len__(self) -> int:
        return len(self._places)

    def begin(self, places: Sequence[int]) -> list[int]:
        """Begin a step that uses the masks at these places; returns the indices of those that leave no choice."""
        self._step += 1
        self._used[places] = self._step
        found: list[int] = np.flatnonzero(self._lacking[places]).tolist()
        return found

    def only(self, place: int) -> int:
        """The one token that the mask at a place allows; -1 if it allows several."""
        return self._only[place]

    def keep(self, key: StateKey, mask: Bits, *, lacking: bool) -> int | None:
        """Remember a new mask [words], and whether it leaves no choice; returns its place, None if all are in use."""
        if not self._free:
            # Several at once, since finding them takes as long as finding one.
            count = -(-self._most // _FORGOTTEN)
            oldest = 1 + np.argpartition(self._used[1:], count - 1)[:count]
            for place in oldest[self._used[oldest] < self._step].tolist():
                del self._places[self._keys.pop(place)]
                self._free.append(place)
        if not self._free:
            return None
        place = self._free.pop()
        self._places[key], self._keys[place] = place, key
        self._lacking[place], self._used[place] = lacking, self._step
        tokens = allowed_tokens(mask) if lacking else ()
        self._only[place] = tokens[0] if len(tokens) == 1 else _SEVERAL
        return place

    def keep_widest(self, key: StateKey, mask: Bits) -> None:
        """Keep a computed mask [words] on the host, from which others of the same field can be derived."""
        room = room_of(key)
        if room > self._widest.get(key[0], (0, mask))[0]:
            self._widest[key[0]] = room, mask.copy()
            self._widest.move_to_end(key[0])
            if len(self._widest) > _WIDEST:
                self._widest.popitem(last=False)

    def derive(self, key: StateKey, tokens: JsonTokens, mask: Bits) -> bool:
        """Fill a mask [words] if one with more room in the same field implies it; returns whether it was filled."""
        room = room_of(key)
        found = self._widest.get(key[0]) if room else None
        if found is None or room > found[0] or (found[1] & tokens.unsure_bits).any():
            return False
        self._widest.move_to_end(key[0])
        np.bitwise_and(found[1], tokens.up_to(room), out=mask)
        return True


class RowMasks:
    """Collects the masks of a step's rows; initially, each allows everything.

    New masks lie in one array, `bits`, which is sent without a copy; a mask's number is its index there.
    """

    def __init__(self, rows: int, memory: MaskMemory) -> None:
        self.memory = memory
        self.places = [ANY] * rows
        # By numpy, which asks for huge pages: with torch's small ones, this can take a step 10 ms.
        self.bits = np.empty((MAX_NEW_MASKS * rows, memory.words), np.int32)
        self._count = 0  # new masks
        self._kept: dict[int, int] = {}  # numbers by place
        self._unkept: dict[int, int] = {}  # numbers by row
        self._shared: set[int] = set()  # numbers that several rows have

    def add(self, count: int) -> range:
        """The numbers of more new masks. The caller fills their `bits`, and keeps or gives each of them."""
        first, self._count = self._count, self._count + count
        assert self._count <= len(self.bits)
        return range(first, self._count)

    def keep(self, place: int, number: int) -> None:
        """Send a new mask to be kept at a place."""
        self._kept[place] = number

    def give(self, row: int, number: int) -> None:
        """Give a row a new mask for this step only."""
        self._unkept[row] = number

    def give_same(self, row: int, other: int) -> None:
        """Give a row the mask that another row was given."""
        self._unkept[row] = self._unkept[other]
        self._shared.add(self._unkept[other])

    def allow_only(self, row: int, token: int) -> None:
        """Give a row a mask of one token, unless it has that mask."""
        number = self._unkept.get(row)
        if number is None and self.memory.only(self.places[row]) == token:
            return
        if number is None or number in self._shared:
            (number,) = self.add(1)
            self.give(row, number)
        allow_only(self.bits[number], (token,))

    def of_step(self) -> StepMasks:
        """The rows' places, and the new masks, which stay in `bits`."""
        first = self.memory.first_unkept
        own = {number: first + index for index, number in enumerate(dict.fromkeys(self._unkept.values()))}
        places = np.array(self.places, np.int32)
        places[[*self._unkept]] = [own[number] for number in self._unkept.values()]
        targets = np.full(self._count, ANY, np.int32)
        targets[[*self._kept.values(), *own]] = [*self._kept, *own.values()]
        new, sent = self.bits[: self._count], targets != ANY
        if not sent.all():  # masks that were replaced have no target, and place ANY must not be written
            new, targets = new[sent], targets[sent]
        return StepMasks(places, new, targets)


class ForcedMemory:
    """The tokens, possibly none, forced in a state after a certain token: llguidance divides forced bytes into tokens
    as the tokenizer would after that token. The least recently used are forgotten. Used by the core's thread.
    """

    def __init__(self, most: int = _FORCED) -> None:
        self._most = most
        self._tokens: OrderedDict[tuple[StateKey, int], Sequence[int]] = OrderedDict()

    def of(self, key: StateKey, last: int) -> Sequence[int] | None:
        tokens = self._tokens.get((key, last))
        if tokens is not None:
            self._tokens.move_to_end((key, last))
        return tokens

    def keep(self, key: StateKey, last: int, tokens: Sequence[int]) -> None:
        if len(tokens) > _MAX_FORCED:
            return
        self._tokens[key, last] = tokens
        if len(self._tokens) > self._most:
            self._tokens.popitem(last=False)
