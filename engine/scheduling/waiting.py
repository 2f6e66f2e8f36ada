"""The order of admission. Owns the sequences that wait.

The highest priority goes first. Among equals, preempted sequences go first, then the earliest deadline, then the
longest expected output: long outputs left for the end of a drain would need steps that read all weights for few tokens.
After a sequence, its siblings follow at once, so that they find its prompt in the cache; those that share most of it go
first. Siblings that need a state which is still being computed are held back: others of their priority go on, and the
siblings follow in the next step. Deadlines are rounded, more coarsely the further off they are.

Those that share less than half of their prompts are no siblings if so many do that some of them probably run, and keep
the prefix in the cache. Those that share more are siblings even then, since attention reads their prefix once for all
that run together, but never more than `_FAMILY`.

After every `_PATIENCE` others, the sequence that has waited longest goes next. Each sibling that follows it lets as
many others go first: otherwise, large families would go in the order of arrival.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.prefix_groups import common_length
from thothy_ai.engine.scheduling.prompt_order import STRIDE, Path, PromptOrder, PromptPlace, path_of
from thothy_ai.engine.scheduling.sequence import Sequence

_FAMILY = 32  # siblings at most; more than the jobs of a source
_SHARING = 2  # if more sequences that run share a prefix, on average, one of them nearly always does
_PATIENCE = 16  # sequences that go before one that has waited longest
_MIN_SLACK = 60.0  # seconds

Clock = Callable[[], float]
Keeping = Callable[[int], int]  # by priority: running sequences of at least this one that keep their prompts' KV


class _Rank(NamedTuple):
    """The order among sequences of one profile and one priority."""

    deadline: float
    shorter: int  # minus max_tokens
    arrival: int
    place: PromptPlace


class _Family(NamedTuple):
    """Siblings that go next: at most `left` more sequences, whose prompts begin with this prefix."""

    prefix: Path
    last: Path  # prompt path of the sequence that went last
    left: int
    aged: bool  # its first sequence went for having waited longest


class WaitingQueue:
    """Adding, removing and choosing cost O(log n) in the waiting sequences, and O(waiting profiles) once per family."""

    def __init__(self, lengths: LengthEstimator, keeping: Keeping, clock: Clock = time.time) -> None:
        self._lengths, self._keeping, self._clock = lengths, keeping, clock
        self._lines: dict[int, _Line] = {}  # by priority; none is empty
        self._arrivals: list[tuple[int, Sequence]] = []  # sorted
        self._arrived = 0
        self._others = _PATIENCE  # that go before the one that has waited longest

    def __len__(self) -> int:
        return len(self._arrivals)

    def add(self, sequence: Sequence) -> None:
        sequence.arrival, self._arrived = self._arrived, self._arrived + 1
        insort(self._arrivals, (sequence.arrival, sequence))
        deadline = math.inf
        if sequence.request.deadline is not None:
            slack = max(sequence.request.deadline - self._clock(), _MIN_SLACK)
            grain = 2.0 ** math.floor(math.log2(slack / 4))  # between an eighth and a quarter of the slack
            deadline = sequence.request.deadline // grain * grain
        self._line(sequence.priority).add(sequence, deadline)

    def push_front(self, sequence: Sequence) -> None:
        """Add a preempted sequence before all others of its priority."""
        insort(self._arrivals, (sequence.arrival, sequence))
        self._line(sequence.priority).push_front(sequence)

    def begin_step(self) -> None:
        """Hold nothing back any longer."""
        for line in self._lines.values():
            line.release()

    def hold(self, sequence: Sequence, tokens: int) -> bool:
        """Hold back the next sequence and the siblings that share its first `tokens` tokens, rounded down to a multiple
        of `STRIDE`. Returns False, and holds nothing back, if none of its siblings has begun.
        """
        return self._lines[sequence.priority].hold(sequence, tokens)

    def first(self) -> Sequence | None:
        """The next sequence, which must be removed or held back before the queue changes otherwise; None if the highest
        priority's are all held back.
        """
        priority = max(self._lines)
        line = self._lines[priority]
        if self._others <= 0 and line.between_families:
            oldest = self._arrivals[0][1]
            if oldest.priority == priority:
                line.lead(oldest)
            else:
                self._take(oldest)
                oldest.priority = priority
                line.push_front(oldest)
        return line.first()

    def shared(self, sequence: Sequence) -> set[int]:
        """Lengths, in tokens, of the prefixes that a waiting sequence shares with those that may follow it."""
        return self._lines[sequence.priority].shared(sequence)

    def first_above(self, priority: int) -> Sequence | None:
        """The next sequence of the highest waiting priority, if it exceeds `priority`."""
        highest = max(self._lines, default=priority)
        return self._lines[highest].first() if highest > priority else None

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that was admitted, or that has ended."""
        index = bisect_left(self._arrivals, sequence.arrival, key=lambda arrival: arrival[0])
        del self._arrivals[index]
        if self._take(sequence):
            self._others = max(0, self._others) + _PATIENCE
        else:
            self._others = self._others - 1 if index else max(self._others, _PATIENCE)

    def _line(self, priority: int) -> _Line:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = _Line(self._lengths, partial(self._keeping, priority))
        return line

    def _take(self, sequence: Sequence) -> bool:
        line = self._lines[sequence.priority]
        aged = line.remove(sequence)
        if not line:
            del self._lines[sequence.priority]
        return aged


class _Line:
    """Waiting sequences of one priority."""

    def __init__(self, lengths: LengthEstimator, keeping: Callable[[], int]) -> None:
        self._lengths, self._keeping = lengths, keeping
        self._front: deque[Sequence] = deque()
        self._ranks: dict[Sequence, _Rank] = {}
        self._profiles: dict[str, list[_Rank]] = {}  # sorted; none is empty
        self._prompts = PromptOrder()
        self._families: list[_Family] = []  # several if siblings were held back
        self._held: set[int] = set()  # hashes of prompts' prefixes, whose sequences are held back
        self._next: PromptPlace | None = None  # cached until the next change
        self._oldest: PromptPlace | None = None  # the last that was to lead for having waited longest

    def __len__(self) -> int:
        return len(self._front) + len(self._ranks)

    @property
    def between_families(self) -> bool:
        """Whether the next sequence is neither preempted nor a sibling of the last one."""
        return not self._front and self._sibling() is None

    def add(self, sequence: Sequence, deadline: float) -> None:
        place = PromptPlace(path_of(sequence), sequence.arrival, sequence)
        rank = self._ranks[sequence] = _Rank(deadline, -sequence.max_tokens, sequence.arrival, place)
        insort(self._profiles.setdefault(sequence.request.profile, []), rank)
        self._prompts.add(place)
        self._next = None

    def push_front(self, sequence: Sequence) -> None:
        self._front.appendleft(sequence)

    def first(self) -> Sequence | None:
        if self._front:
            return self._front[0]
        if self._next is None:
            self._next = self._sibling() or self._most_urgent()
        return None if self._next is None else self._next.sequence

    def _most_urgent(self) -> PromptPlace | None:
        free = ((rank for rank in ranks if self._is_free(rank.place)) for ranks in self._profiles.values())
        first = min(filter(None, (next(ranks, None) for ranks in free)), key=self._urgency, default=None)
        return None if first is None else first.place

    def _urgency(self, rank: _Rank) -> tuple[float, float, int]:
        return rank.deadline, -self._length(rank.place), rank.arrival

    def _is_free(self, place: PromptPlace) -> bool:
        """Whether the sequence isn't held back."""
        return not self._held or self._held.isdisjoint(place.path)

    def hold(self, sequence: Sequence, tokens: int) -> bool:
        rank = self._ranks.get(sequence)  # preempted sequences have none
        if rank is None or (family := self._family_of(rank.place.path)) is None:
            return False
        depth = max(tokens // STRIDE, len(family.prefix))  # a shorter prefix could be that of all who wait
        self._held.add(rank.place.path[depth - 1])
        self._next = None
        return True

    def release(self) -> None:
        if self._held:
            self._held.clear()
            self._next = None

    def shared(self, sequence: Sequence) -> set[int]:
        rank = self._ranks.get(sequence)  # preempted sequences have none
        return set() if rank is None else self._prompts.shared(rank.place, _FAMILY)

    def lead(self, sequence: Sequence) -> None:
        """Make the sequence, which has waited longest, next in line after the preempted ones."""
        if (rank := self._ranks.get(sequence)) and self._is_free(rank.place):
            self._next = self._oldest = rank.place

    def remove(self, sequence: Sequence) -> bool:
        """Returns whether the sequence went for having waited longest, or as a sibling of one that did."""
        rank = self._ranks.pop(sequence, None)
        if rank is None:
            self._front.remove(sequence)
            return False
        aged = False
        if rank.place is self._next:
            path = rank.place.path
            family = self._family_of(path)
            if family is not None:
                aged = family.aged
                self._families[self._families.index(family)] = family._replace(last=path, left=family.left - 1)
            else:  # a family begins: the sequences that share this prefix
                aged = rank.place is self._oldest
                prefix = self._family_prefix(rank.place)
                if prefix is not None:
                    self._families.append(_Family(prefix, path, _FAMILY - 1, aged))
        ranks = self._profiles[sequence.request.profile]
        del ranks[bisect_left(ranks, rank)]
        if not ranks:
            del self._profiles[sequence.request.profile]
        self._prompts.remove(rank.place)
        self._next = None
        return aged

    def _family_prefix(self, place: PromptPlace) -> Path | None:
        """The prefix of a sequence and its siblings; None if it has none."""
        waiting = len(self._prompts)
        most = min(_FAMILY, waiting // 2)
        prefix = self._prompts.prefix(place, most)
        if prefix is None:
            return None
        family = [*self._prompts.sharing(prefix)]
        shared = common_length(family[0].path, family[-1].path)
        if 2 * shared >= len(place.path) or not (keeping := self._keeping()):
            return prefix
        return self._prompts.prefix(place, min(most, math.ceil(_SHARING * waiting / keeping)))

    def _sibling(self) -> PromptPlace | None:
        """The next sequence of the first family that has one: the one that shares most with its last; of equals, the
        longest.
        """
        for family in [*self._families]:
            if family.prefix[-1] in self._held:
                continue
            waiting = [*self._prompts.sharing(family.prefix)] if family.left else []
            if not waiting:
                self._families.remove(family)
            elif free := [*filter(self._is_free, waiting)]:
                return max(free, key=partial(self._closeness, family))
        return None

    def _closeness(self, family: _Family, place: PromptPlace) -> tuple[int, float, int]:
        return common_length(place.path, family.last), self._length(place), -place.arrival

    def _family_of(self, path: Path) -> _Family | None:
        return next((each for each in self._families if each.left and path[: len(each.prefix)] == each.prefix), None)

    def _length(self, place: PromptPlace) -> float:
        sequence = place.sequence
        return self._lengths.expected(sequence.request.profile, sequence.max_tokens)
