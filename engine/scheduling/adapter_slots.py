"""Which adapters have a slot on the device, and which sequences wait until theirs has one.

A sequence with an adapter enters the waiting queue once the adapter has a slot, and holds the slot until its end: no
adapter loses its slot while it is used. Among slots that nobody holds, the least recently used is given away.

Adapters without a slot stand in a line, in which each waits with its sequences. While there is a line, an adapter that
has a slot lets in at most `_TURN` sequences, and then stands in line, too: those with many requests do not starve the
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from thothy_ai.engine.api import AdapterStats
from thothy_ai.engine.scheduling.adapter import NO_SLOT, Adapter
from thothy_ai.engine.scheduling.sequence import NO_ROW, Sequence

_TURN = 32  # sequences: more than a source has jobs


@dataclass(eq=False, slots=True)
class _Slot:
    """`holders` are in the order in which they came. `let_in`: in this turn."""

    index: int
    adapter: Adapter | None = None
    holders: dict[Sequence, None] = field(default_factory=dict)
    let_in: int = 0
    used: int = 0


class AdapterSlots:
    """Owns the slots and the line. All costs are small in the number of slots and of adapters that wait."""

    def __init__(self, slots: int) -> None:
        self._slots = [_Slot(index) for index in range(slots)]
        self._by_number: dict[int, _Slot] = {}
        self._line: dict[int, dict[Sequence, None]] = {}  # by an adapter's number; who has waited longest comes first
        self._clock = 0
        self._copies: dict[int, int] = {}  # slot: the adapter that comes there with the next step
        self._copied = 0  # so far

    @property
    def stats(self) -> AdapterStats:
        """Without what only a library of adapters knows."""
        return AdapterStats(resident=len(self._by_number), waiting=self.waiting, copies=self._copied)

    @property
    def waiting(self) -> int:
        """Sequences that wait for a slot."""
        return sum(map(len, self._line.values()))

    def enter(self, sequence: Sequence, adapter: Adapter) -> bool:
        """Whether a new sequence may be queued now; if not, `assign` returns it later."""
        slot = self._by_number.get(adapter.number)
        if slot is not None and (slot.let_in < _TURN or not self._contested):
            self._hold(slot, sequence)
            return True
        self._line.setdefault(adapter.number, {})[sequence] = None
        return False

    def leave(self, sequence: Sequence, adapter: Adapter) -> bool:
        """A sequence has ended; returns whether it had a slot."""
        if sequence.adapter_slot != NO_SLOT:
            del self._by_number[adapter.number].holders[sequence]
            sequence.adapter_slot = NO_SLOT
            return True
        waiting = self._line[adapter.number]
        del waiting[sequence]
        if not waiting:
            del self._line[adapter.number]
        return False

    def forget(self, number: int) -> None:
        """The adapter is gone; no sequence has it."""
        if (slot := self._by_number.pop(number, None)) is not None:
            slot.adapter, slot.used = None, 0
            self._copies.pop(slot.index, None)

    def reclaim(self) -> list[Sequence]:
        """Sequences that are queued beyond their adapter's turn, and wait in line from now on, since others do."""
        taken: list[Sequence] = []
        if not self._contested:
            return taken
        for slot in self._slots:
            if slot.adapter is None or slot.let_in <= _TURN:
                continue
            slot.let_in = _TURN
            beyond = [each for each in [*slot.holders][_TURN:] if each.row == NO_ROW and not each.preemptions]
            for sequence in beyond:
                del slot.holders[sequence]
                sequence.adapter_slot = NO_SLOT
                self._line.setdefault(slot.adapter.number, {})[sequence] = None
            taken += beyond
        return taken

    def assign(self) -> list[Sequence]:
        """Give slots that nobody holds to those in line; returns the sequences that may be queued now."""
        entered: list[Sequence] = []
        for number, waiting in sorted(self._line.items(), key=_by_priority):
            slot = self._by_number.get(number)
            if slot is not None and slot.holders and self._contested:
                continue  # its turn ends first
            slot = slot or self._free_slot()
            if slot is None:
                continue
            self._give(slot, waiting)
            slot.let_in = 0
            del self._line[number]
            turn = [*waiting][:_TURN] if self._contested else [*waiting]
            for sequence in turn:
                del waiting[sequence]
                self._hold(slot, sequence)
            entered += turn
            if waiting:
                self._line[number] = waiting  # behind all others
        return entered

    def take_copies(self) -> dict[int, int]:
        """The adapters, by slot, that are to be copied with the next step."""
        copies, self._copies = self._copies, {}
        self._copied += len(copies)
        return copies

    @property
    def _contested(self) -> bool:
        """Whether adapters wait that have no slot."""
        return any(number not in self._by_number for number in self._line)

    def _free_slot(self) -> _Slot | None:
        """The least recently used of those that nobody holds; one for whose adapter sequences wait, if need be."""

        def rank(slot: _Slot) -> tuple[bool, int]:
            return slot.adapter is not None and slot.adapter.number in self._line, slot.used

        return min((slot for slot in self._slots if not slot.holders), key=rank, default=None)

    def _give(self, slot: _Slot, waiting: Iterable[Sequence]) -> None:
        adapter = next(iter(waiting)).adapter
        if adapter is None or slot.adapter == adapter:
            return
        if slot.adapter is not None:
            del self._by_number[slot.adapter.number]
        slot.adapter = adapter
        self._by_number[adapter.number] = slot
        self._copies[slot.index] = adapter.number

    def _hold(self, slot: _Slot, sequence: Sequence) -> None:
        self._clock += 1
        slot.used = self._clock
        slot.let_in += 1
        slot.holders[sequence] = None
        sequence.adapter_slot = slot.index


def _by_priority(entry: tuple[int, dict[Sequence, None]]) -> int:
    """The highest priority first; of equals, those that have waited longest."""
    return -max(sequence.priority for sequence in entry[1])
