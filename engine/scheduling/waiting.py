"""Who is admitted next. Owns the sequences that wait.

Long outputs go first: left to the end, a few of them make many steps that read all weights for little. Siblings stay
together, so that they find their prefix in the cache: whose prompts begin alike make a family, which is admitted as
one. Families of the same profiles form a lane, first come first served, and the lane with the longest expected output
is next. Nobody is overtaken by more than `most_overtaking` sequences that came later.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.sequence import Sequence

_ALIKE = 256  # tokens: more than all prompts of a house begin with, fewer than a source has

Beginning = tuple[str, tuple[int, ...]]


@dataclass(eq=False, slots=True)
class _Family:
    """Waiting sequences whose prompts begin alike, in order of arrival, and the profiles seen among them."""

    profiles: frozenset[str] = frozenset()
    members: OrderedDict[Sequence, None] = field(default_factory=OrderedDict)

    @property
    def first(self) -> Sequence:
        """The one that came first."""
        return next(iter(self.members))


class WaitingLine:
    """Everything is O(1) but choosing a family, which is O(lanes)."""

    def __init__(self, lengths: LengthEstimator, most_overtaking: int) -> None:
        self._lengths, self._most_overtaking = lengths, most_overtaking
        self._preempted: deque[Sequence] = deque()
        self._arrivals: OrderedDict[Sequence, int] = OrderedDict()  # how many had come before
        self._arrived = 0
        self._families: dict[Beginning, _Family] = {}
        self._lanes: dict[frozenset[str], OrderedDict[_Family, None]] = {}
        self._current: _Family | None = None  # the one that is being admitted

    def __len__(self) -> int:
        """Sequences that wait."""
        return len(self._preempted) + len(self._arrivals)

    def add(self, sequence: Sequence) -> None:
        """A new sequence joins its family."""
        self._arrivals[sequence] = self._arrived
        self._arrived += 1
        family = self._families.setdefault(_beginning(sequence), _Family())
        family.members[sequence] = None
        if sequence.request.profile not in family.profiles:
            self._leave_lane(family)
            family.profiles |= {sequence.request.profile}
            self._lanes.setdefault(family.profiles, OrderedDict())[family] = None

    def put_first(self, sequence: Sequence) -> None:
        """A preempted sequence comes before all others."""
        self._preempted.appendleft(sequence)

    def first(self) -> Sequence:
        """Who is next; nobody may have changed the line when it is removed."""
        if self._preempted:
            return self._preempted[0]
        oldest, before = next(iter(self._arrivals.items()))
        if self._arrived - len(self._arrivals) - before >= self._most_overtaking:  # left before it
            return oldest
        if self._current is None:
            self._current = self._longest()
        return self._current.first

    def remove(self, sequence: Sequence) -> None:
        """It was admitted, or it has ended."""
        if sequence not in self._arrivals:
            self._preempted.remove(sequence)
            return
        del self._arrivals[sequence]
        beginning = _beginning(sequence)
        family = self._families[beginning]
        del family.members[sequence]
        if not family.members:
            del self._families[beginning]
            self._leave_lane(family)
            self._current = None if self._current is family else self._current

    def _longest(self) -> _Family:
        """The first family of the lane with the longest expected output; of equal lanes, the one that came first."""
        heads = [next(iter(lane)) for lane in self._lanes.values()]
        return max(heads, key=lambda family: (self._expected(family), -self._arrivals[family.first]))

    def _expected(self, family: _Family) -> float:
        return max(self._lengths.mean(profile) for profile in family.profiles)

    def _leave_lane(self, family: _Family) -> None:
        lane = self._lanes.get(family.profiles)
        if lane is None:
            return
        lane.pop(family, None)
        if not lane:
            del self._lanes[family.profiles]


def _beginning(sequence: Sequence) -> Beginning:
    """What siblings have in common."""
    return sequence.request.salt, sequence.request.prompt[:_ALIKE]
