"""Which adapters have a slot on the device, and which sequences wait until theirs has one.

A sequence with an adapter enters the waiting queue once the adapter has a slot, and holds the slot until its end, so
that no adapter loses its slot while in use. A new adapter gets the least recently used slot that no sequence holds.

Adapters without a slot stand in a line, each with its waiting sequences. The highest priority goes first, and among
equals the adapter that has waited longest; after every `_PATIENCE` others, the one that has waited longest of all goes
next. While there is a line, an adapter with a slot lets in at most `_TURN` sequences and then joins the line as well,
so that adapters with many requests don't starve the others. Sequences more urgent than the whole line are let in beyond
the turn; sequences that have not begun give way to more urgent ones in line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from thothy_ai.engine.api import AdapterStats
from thothy_ai.engine.api.adapters import NO_SLOT, Adapter
from thothy_ai.engine.scheduling.sequence import NO_ROW, Sequence

_TURN = 32  # sequences; more than the sibling jobs of a source
_PATIENCE = 16  # adapters that go first


class _Waiting:
    """The sequences of an adapter in line, by priority; a priority without sequences has no entry."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[Sequence, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def highest(self) -> int:
        return max(self._lines)

    def add(self, sequence: Sequence) -> None:
        self._lines.setdefault(sequence.priority, {})[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        line = self._lines[sequence.priority]
        del line[sequence]
        if not line:
            del self._lines[sequence.priority]

    def first(self, count: int | None) -> list[Sequence]:
        """The first `count` sequences, or all if None: by priority, then by arrival."""
        return list(islice((each for _, line in sorted(self._lines.items(), reverse=True) for each in line), count))


@dataclass(eq=False, slots=True)
class _Slot:
    """`holders` are in order of arrival. `let_in` and `urgent` count sequences let in within this turn and beyond it.
    `swept`: every holder that has not begun has at least this priority.
    """

    index: int
    adapter: Adapter | None = None
    holders: dict[Sequence, None] = field(default_factory=dict)
    let_in: int = 0
    urgent: int = 0
    swept: int | None = None
    used: int = 0


class AdapterSlots:
    """Owns the slots and the line. An operation costs time in proportion to the slots and to the adapters in line;
    each sequence adds a cost only when it enters, and when it first gives way.
    """

    def __init__(self, slots: int) -> None:
        self._slots = [_Slot(index) for index in range(slots)]
        self._by_number: dict[int, _Slot] = {}
        self._line: dict[int, _Waiting] = {}  # by adapter number; the longest wait comes first
        self._passed = 0  # turns given to others before the first in line
        self._clock = 0
        self._copies: dict[int, int] = {}  # slot: the adapter to be copied there with the next step
        self._copied = 0  # copies so far

    @property
    def stats(self) -> AdapterStats:
        """The statistics of slots; the library of adapters adds its own."""
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
        if slot is not None and slot.urgent < _TURN and sequence.priority > self._highest:
            slot.urgent += 1
            self._hold(slot, sequence)
            return True
        self._line.setdefault(adapter.number, _Waiting()).add(sequence)
        return False

    def leave(self, sequence: Sequence, adapter: Adapter) -> bool:
        """A sequence has ended; returns whether it had a slot."""
        if sequence.adapter_slot != NO_SLOT:
            slot = self._by_number[adapter.number]
            del slot.holders[sequence]
            self._use(slot)
            sequence.adapter_slot = NO_SLOT
            return True
        waiting = self._line[adapter.number]
        waiting.remove(sequence)
        if not waiting:
            del self._line[adapter.number]
        return False

    def forget(self, number: int) -> None:
        """Forget an unloaded adapter, which no sequence has any more."""
        if (slot := self._by_number.pop(number, None)) is not None:
            slot.adapter, slot.used = None, 0
            self._copies.pop(slot.index, None)

    def reclaim(self) -> list[Sequence]:
        """Move queued sequences back into the line if they exceed their adapter's turn, or are less urgent than one in
        line; returns them.
        """
        taken: list[Sequence] = []
        if not self._contested:
            return taken
        highest = self._highest
        for slot in self._slots:
            swept = slot.swept is not None and slot.swept >= highest
            if slot.adapter is None or (slot.let_in <= _TURN and swept):
                continue
            slot.let_in, slot.swept = min(slot.let_in, _TURN), highest
            for place, sequence in enumerate([*slot.holders]):
                begun = sequence.row != NO_ROW or sequence.preemptions
                if begun or sequence.priority > highest or (sequence.priority == highest and place < _TURN):
                    continue
                del slot.holders[sequence]
                sequence.adapter_slot = NO_SLOT
                self._line.setdefault(slot.adapter.number, _Waiting()).add(sequence)
                taken.append(sequence)
        return taken

    def assign(self) -> list[Sequence]:
        """Give free slots to adapters in line; returns the sequences that can be queued now."""
        entered: list[Sequence] = []
        while (number := self._next()) is not None:
            waiting = self._line.pop(number)
            turn = waiting.first(_TURN if self._contested else None)
            slot = self._by_number.get(number) or self._given(turn[0].adapter)
            slot.let_in = slot.urgent = 0
            for sequence in turn:
                waiting.remove(sequence)
                self._hold(slot, sequence)
            entered += turn
            if waiting:
                self._line[number] = waiting  # behind all others
        return entered

    def take_copies(self) -> dict[int, int]:
        """Take the adapters, by slot, that must be copied with the next step."""
        copies, self._copies = self._copies, {}
        self._copied += len(copies)
        return copies

    @property
    def _contested(self) -> bool:
        """Whether adapters without a slot are in line."""
        return any(number not in self._by_number for number in self._line)

    @property
    def _highest(self) -> int:
        """The highest priority in line."""
        return max(waiting.highest for waiting in self._line.values())

    def _next(self) -> int | None:
        """The adapter in line that gets a slot now, or has one and can let in more sequences."""
        free, contested = any(not slot.holders for slot in self._slots), self._contested
        able = []
        for number in self._line:
            slot = self._by_number.get(number)
            if free if slot is None else not (slot.holders and contested):  # else its turn ends first
                able.append(number)
        if not able:
            return None
        chosen = able[0]
        if self._passed < _PATIENCE:
            chosen = max(able, key=lambda number: self._line[number].highest)
        self._passed = 0 if chosen == able[0] else self._passed + 1
        return chosen

    def _given(self, adapter: Adapter | None) -> _Slot:
        """The least recently used free slot; one whose adapter is in line is taken only if there is no other."""
        if adapter is None:
            raise ValueError("a sequence without an adapter waits for none")

        def rank(slot: _Slot) -> tuple[bool, int]:
            return slot.adapter is not None and slot.adapter.number in self._line, slot.used

        slot = min((slot for slot in self._slots if not slot.holders), key=rank)
        if slot.adapter is not None:
            del self._by_number[slot.adapter.number]
        slot.adapter = adapter
        self._by_number[adapter.number] = slot
        self._copies[slot.index] = adapter.number
        return slot

    def _hold(self, slot: _Slot, sequence: Sequence) -> None:
        self._use(slot)
        slot.let_in += 1
        slot.swept = None
        slot.holders[sequence] = None
        sequence.adapter_slot = slot.index

    def _use(self, slot: _Slot) -> None:
        self._clock += 1
        slot.used = self._clock
