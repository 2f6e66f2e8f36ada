"""The order of admission. Owns the sequences that wait.

Long outputs go first: left to the end, a few of them make many steps that read all weights for few tokens. Siblings
stay together, so that they find their prefix in the cache: sequences whose prompts begin alike form a family, and
families take turns. The family of a source is small enough to be admitted in one turn; a kind with a long template
forms a large one, which after each turn may have to wait for others.

The families with the same longest profile form a lane, first come, first served; those with a profile of which nothing
is known form a lane together. The lane with the longest expected output is next. No sequence is overtaken by more than
`max_overtaking` sequences that came later.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.sequence import Sequence

_ALIKE = 256  # tokens: more than the prompts of all kinds have in common, fewer than a source has
_TURN = 16  # sequences: more than a source has jobs

Beginning = tuple[str, tuple[int, ...]]


@dataclass(eq=False, slots=True)
class _Family:
    """Waiting sequences whose prompts begin alike, in order of arrival, and how many have each profile."""

    beginning: Beginning
    lane: _Lane | None = None  # only while it is made
    profiles: Counter[str] = field(default_factory=Counter)
    members: OrderedDict[Sequence, None] = field(default_factory=OrderedDict)

    @property
    def first(self) -> Sequence:
        """The member that came first."""
        return next(iter(self.members))


@dataclass(eq=False, slots=True)
class _Lane:
    """Families whose longest profile is `profile` (None: one of which nothing is known), as a heap by arrival.

    Entries may be out of date; `WaitingQueue._head` drops those.
    """

    profile: str | None
    families: list[tuple[int, _Family]] = field(default_factory=list)


class _Arrival(NamedTuple):
    before: int  # sequences that had come
    family: _Family


class WaitingQueue:
    """Adding and removing cost O(log waiting), except that a new profile costs O(profiles of the family), and removing
    a preempted sequence that is not the first O(preempted). Choosing the next family costs O(lanes), and again for each
    family whose longest profile has changed by then.
    """

    def __init__(self, lengths: LengthEstimator, max_overtaking: int) -> None:
        self._lengths, self._max_overtaking = lengths, max_overtaking
        self._preempted: deque[Sequence] = deque()
        self._arrivals: OrderedDict[Sequence, _Arrival] = OrderedDict()
        self._arrived = 0
        self._families: dict[Beginning, _Family] = {}
        self._lanes: dict[str | None, _Lane] = {}  # by profile
        self._current: _Family | None = None  # its turn lasts
        self._turn = 0  # sequences of it that left in this turn

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._preempted) + len(self._arrivals)

    def add(self, sequence: Sequence) -> None:
        """Add a new sequence to its family."""
        beginning, profile = _beginning(sequence), sequence.request.profile
        family = self._families.get(beginning)
        if family is None:
            family = self._families[beginning] = _Family(beginning)
        self._arrivals[sequence] = _Arrival(self._arrived, family)
        self._arrived += 1
        family.members[sequence] = None
        family.profiles[profile] += 1
        if family.profiles[profile] == 1:
            longest = self._lengths.longest(family.profiles)
            if family.lane is None or longest != family.lane.profile:
                self._enter_lane(family, longest)

    def push_front(self, sequence: Sequence) -> None:
        """Add a preempted sequence before all others."""
        self._preempted.appendleft(sequence)

    def first(self) -> Sequence:
        """The next sequence; the queue must not change before it is removed."""
        if self._preempted:
            return self._preempted[0]
        oldest, arrival = next(iter(self._arrivals.items()))
        if self._arrived - len(self._arrivals) - arrival.before >= self._max_overtaking:  # left before it
            return oldest
        if self._current is None or self._turn >= _TURN:
            self._current, self._turn = self._next(), 0
        return self._current.first

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that was admitted, or that has ended."""
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
            heads = [(lane, head) for lane in tuple(self._lanes.values()) if (head := self._head(lane))]
            lane, family = max(heads, key=lambda head: (self._lengths.mean(head[0].profile), -self._place(head[1])))
            longest = self._lengths.longest(family.profiles)
            if longest == lane.profile:
                return family
            self._enter_lane(family, longest)

    def _head(self, lane: _Lane) -> _Family | None:
        """The family of the lane that came first; a lane without any is removed."""
        heap = lane.families
        while heap:
            place, family = heap[0]
            if family.lane is not lane or not family.members:
                heappop(heap)
            elif place != self._place(family):
                heapreplace(heap, (self._place(family), family))
            else:
                return family
        del self._lanes[lane.profile]
        return None

    def _place(self, family: _Family) -> int:
        return self._arrivals[family.first].before

    def _enter_lane(self, family: _Family, profile: str | None) -> None:
        lane = self._lanes.get(profile)
        if lane is None:
            lane = self._lanes[profile] = _Lane(profile)
        family.lane = lane
        heappush(lane.families, (self._place(family), family))


def _beginning(sequence: Sequence) -> Beginning:
    """What siblings have in common."""
    return sequence.request.salt, sequence.request.prompt[:_ALIKE]
