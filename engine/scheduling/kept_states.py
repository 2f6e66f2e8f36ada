"""States of recurrent layers that are kept at the ends of prefixes, so that siblings begin there.

A state is known by the chain of its prefix's last block, as blocks are; where that block is no longer found, neither is
the state, and both leave in time: the least recently used state makes room for a new one.
"""

from __future__ import annotations

from collections import OrderedDict

from thothy_ai.engine.scheduling.blocks import Chain
from thothy_ai.engine.scheduling.sequence import Sequence


class KeptStates:
    """Owns the slots behind those of the rows, and what running sequences will keep there."""

    def __init__(self, slots: range) -> None:
        self._free = list(reversed(slots))
        self._slots: OrderedDict[Chain, int] = OrderedDict()  # the least recently used first
        self._new: set[Chain] = set()  # of the step that is being planned: copied after its pass
        self._promised: dict[int, tuple[int, Sequence]] = {}  # by a prefix's hash: its tokens, and who computes them
        self._fulfilled: list[int] = []  # of the step that is being planned

    def __contains__(self, chain: Chain) -> bool:
        """Whether a sequence of the step that is being planned may begin there."""
        return chain in self._slots and chain not in self._new

    def begin_step(self) -> None:
        """Plan another step: what the last one kept is there for it."""
        self._new.clear()
        for prefix in self._fulfilled:
            self._promised.pop(prefix, None)
        self._fulfilled.clear()

    def use(self, chain: Chain) -> int:
        """The slot of a state that is there."""
        self._slots.move_to_end(chain)
        return self._slots[chain]

    def keep(self, sequence: Sequence, chain: Chain) -> int | None:
        """The slot for the state of a sequence that comes to its next border, the end of this chain; None if there is
        a state already.
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
        """A running sequence will keep states at its borders."""
        for border in sequence.borders:
            self._promised[_prefix(sequence, border)] = border, sequence

    def withdraw(self, sequence: Sequence) -> None:
        """The sequence will keep no more states than it has."""
        for border in sequence.borders:
            if self._promised.get(_prefix(sequence, border), (0, None))[1] is sequence:
                del self._promised[_prefix(sequence, border)]
        sequence.borders = []

    def promised_to(self, sequence: Sequence) -> bool:
        """Whether a running sequence computes a prefix of this one at whose end it will keep the state. Nobody who
        waits for a text has to wait for a prompt of the batch, which a step has less room for.
        """
        return any(
            border < sequence.known
            and not other.ending
            and (other.interactive or not sequence.interactive)
            and _prefix(sequence, border) == known
            for known, (border, other) in self._promised.items()
        )


def _prefix(sequence: Sequence, tokens: int) -> int:
    """A hash of the sequence's first tokens, its salt and its adapter, if that computed any: where two are equal by
    chance, one waits in vain.
    """
    digest = sequence.branch.digest if tokens > sequence.adapted_from else ""
    return hash((sequence.request.salt, digest, *sequence.tokens[:tokens]))
