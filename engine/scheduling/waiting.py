"""Who is admitted next. Owns the sequences that wait.

Long outputs go first: left to the end, a few of them make many steps that read all weights for little. Siblings stay
together, so that they find their prefix in the cache: whose prompts begin alike make a family, and it is families that
take turns. A source's family is small enough to be admitted in one; a kind whose template is long makes a large one,
which after each turn may have to wait for others.

The families with the same longest profile form a lane, first come first served, and those with a profile of which
nothing is known form one together. The lane with the longest expected output is next. Nobody is overtaken by more than
`most_overtaking` sequences that came later.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.sequence import Sequence

_ALIKE = 256  # tokens: more than all prompts of a house begin with, fewer than a source has
_TURN = 16  # sequences: more than a source has jobs

Beginning = tuple[str, tuple[int, ...]]
Lane = str | None  # its longest profile, if anything is known of that


@dataclass(eq=False, slots=True)
class _Family:
    """Waiting sequences whose prompts begin alike, in order of arrival, and how many have each profile."""

    beginning: Beginning
    lane: Lane = None
    profiles: Counter[str] = field(default_factory=Counter)
    members: OrderedDict[Sequence, None] = field(default_factory=OrderedDict)

    @property
    def first(self) -> Sequence:
        """The one that came first."""
        return next(iter(self.members))


class _Arrival(NamedTuple):
    before: int  # how many had come
    family: _Family


class WaitingLine:
    """Adding and removing cost O(log waiting), but a new profile O(the family's profiles), and a preempted sequence
    that is not the first O(preempted). Choosing whose turn it is costs O(lanes), and again for each family whose
    longest profile is another by then.
    """

    def __init__(self, lengths: LengthEstimator, most_overtaking: int) -> None:
        self._lengths, self._most_overtaking = lengths, most_overtaking
        self._preempted: deque[Sequence] = deque()
        self._arrivals: OrderedDict[Sequence, _Arrival] = OrderedDict()
        self._arrived = 0
        self._families: dict[Beginning, _Family] = {}
        self._lanes: dict[Lane, list[tuple[int, _Family]]] = {}  # heaps by arrival; `_head` drops what is out of date
        self._current: _Family | None = None  # whose turn it is
        self._turn = 0  # how many of it have left since

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._preempted) + len(self._arrivals)

    def add(self, sequence: Sequence) -> None:
        """A new sequence joins its family."""
        beginning, profile = _beginning(sequence), sequence.request.profile
        family = self._families.get(beginning)
        if family is None:
            family = self._families[beginning] = _Family(beginning)
        self._arrivals[sequence] = _Arrival(self._arrived, family)
        self._arrived += 1
        family.members[sequence] = None
        family.profiles[profile] += 1
        if family.profiles[profile] == 1:
            lane = self._lengths.longest(family.profiles)
            if lane != family.lane or len(family.members) == 1:
                self._file(family, lane)

    def put_first(self, sequence: Sequence) -> None:
        """A preempted sequence comes before all others."""
        self._preempted.appendleft(sequence)

    def first(self) -> Sequence:
        """Who is next; nobody may have changed the line when it is removed."""
        if self._preempted:
            return self._preempted[0]
        oldest, arrival = next(iter(self._arrivals.items()))
        if self._arrived - len(self._arrivals) - arrival.before >= self._most_overtaking:  # left before it
            return oldest
        if self._current is None or self._turn >= _TURN:
            self._current, self._turn = self._next(), 0
        return self._current.first

    def remove(self, sequence: Sequence) -> None:
        """It was admitted, or it has ended."""
        arrival = self._arrivals.pop(sequence, None)
        if arrival is None:
            self._preempted.remove(sequence)
            return
        family = arrival.family
        del family.members[sequence]
        profile = sequence.request.profile
        family.profiles[profile] -= 1
        if not family.profiles[profile]:
            del family.profiles[profile]
        self._turn += family is self._current
        if not family.members:
            del self._families[family.beginning]
            self._current = None if self._current is family else self._current

    def _next(self) -> _Family:
        """The first family of the lane with the longest expected output; of equal lanes, the one that came first."""
        while True:
            heads = [head for lane in tuple(self._lanes) if (head := self._head(lane))]
            family = max(heads, key=lambda head: (self._lengths.mean(head.lane), -self._place(head)))
            lane = self._lengths.longest(family.profiles)
            if lane == family.lane:
                return family
            self._file(family, lane)

    def _head(self, lane: Lane) -> _Family | None:
        """The family of the lane that came first; without any, the lane is gone."""
        heap = self._lanes[lane]
        while heap:
            place, family = heap[0]
            if family.lane != lane or not family.members:
                heappop(heap)
            elif place != self._place(family):
                heapreplace(heap, (self._place(family), family))
            else:
                return family
        del self._lanes[lane]
        return None

    def _place(self, family: _Family) -> int:
        return self._arrivals[family.first].before

    def _file(self, family: _Family, lane: Lane) -> None:
        family.lane = lane
        heappush(self._lanes.setdefault(lane, []), (self._place(family), family))


def _beginning(sequence: Sequence) -> Beginning:
    """What siblings have in common."""
    return sequence.request.salt, sequence.request.prompt[:_ALIKE]
