"""Kept states of recurrent layers at the ends of prefixes, from which siblings can begin.

Like a block, a state is found by the chain of its prefix's last block. Once that block can't be found, the state can't
either, and its slot is reused in time: a new state replaces the least recently used one.
"""

from __future__ import annotations

from collections import OrderedDict

from thothy_ai.engine.scheduling.blocks import Chain
from thothy_ai.engine.scheduling.sequence import Sequence


class KeptStates:
    """Owns the slots after those of the rows, and knows which states running sequences will keep there."""

    def __init__(self, slots: range) -> None:
        self._free = list(reversed(slots))
        self._slots: OrderedDict[Chain, int] = OrderedDict()  # the least recently used first
        self._new: set[Chain] = set()  # kept by the step being planned, so not there before its pass
        self._promised: dict[int, tuple[int, Sequence]] = {}  # by a prefix's hash: its tokens, its sequence
        self._fulfilled: list[int] = []  # by the step being planned

    @property
    def promises(self) -> int:
        """How many states running sequences will keep."""
        return len(self._promised)

    def __contains__(self, chain: Chain) -> bool:
        """Whether a sequence of the step being planned can begin with this chain's state."""
        return chain in self._slots and chain not in self._new

    def begin_step(self) -> None:
        """Begin to plan another step, which can use the states that the last one kept."""
        self._new.clear()
        for prefix in self._fulfilled:
            self._promised.pop(prefix, None)
        self._fulfilled.clear()

    def use(self, chain: Chain) -> int:
        """The slot of a kept state, which counts as used."""
        self._slots.move_to_end(chain)
        return self._slots[chain]

    def keep(self, sequence: Sequence, chain: Chain) -> int | None:
        """A slot for the state of a sequence that reaches its next border, the end of this chain; None if the state is
        kept already.
        """
        self._fulfilled.append(_prefix(sequence, sequence.borders.pop(0)))
        if chain in self._slots:
            self._slots.move_to_end(chain)
            return None
        if not self._free:
            replaced, slot = self._slots.popitem(last=False)
            self._new.discard(replaced)
            self._free.append(slot)
        self._slots[chain] = self._free.pop()
        self._new.add(chain)
        return self._slots[chain]

    def promise(self, sequence: Sequence) -> None:
        """Announce that a running sequence will keep states at its borders."""
        for border in sequence.borders:
            self._promised[_prefix(sequence, border)] = border, sequence

    def withdraw(self, sequence: Sequence) -> None:
        """Withdraw the promise: the sequence will keep no further states."""
        for border in sequence.borders:
            if self._promised.get(_prefix(sequence, border), (0, None))[1] is sequence:
                del self._promised[_prefix(sequence, border)]
        sequence.borders = []

    def promised_to(self, sequence: Sequence) -> int:
        """The tokens of a prefix of this sequence that a running one is computing, and at whose end it will keep the
        state; 0 without one. Interactive sequences don't wait for batch prompts, which get only a part of each step.
        """
        for known, (border, other) in self._promised.items():
            waits = border < sequence.known and not other.ending and (other.interactive or not sequence.interactive)
            if waits and _prefix(sequence, border) == known:
                return border
        return 0


def _prefix(sequence: Sequence, tokens: int) -> int:
    """A hash of the sequence's first tokens, its salt and, if it computed any of them, its adapter. After a collision,
    a sequence waits in vain, which does no other harm.
    """
    digest = sequence.branch.digest if tokens > sequence.adapted_from else ""
    return hash((sequence.request.salt, digest, *sequence.tokens[:tokens]))
