"""Sequences in the order of their prompts, in which those that begin alike are neighbours, however deep they nest.

Prompts are compared by hashes of their beginnings, one for each `_STRIDE` tokens, so that a long house prompt costs few
comparisons. A collision would cost a better order, nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from thothy_ai.engine.scheduling.prefix_groups import common_length
from thothy_ai.engine.scheduling.sequence import Sequence

_STRIDE = 32  # tokens; texts that have less in common begin alike by chance

Path = tuple[int, ...]


class Place(NamedTuple):
    """Where a sequence stands in the order; `arrival` is its own."""

    path: Path
    arrival: int
    sequence: Sequence


def path_of(sequence: Sequence) -> Path:
    """Hashes of the beginnings of the prompt, the shortest first, and of no other salt's."""
    prompt, known = sequence.request.prompt, hash(sequence.request.salt)
    path = []
    for end in range(_STRIDE, len(prompt) + 1, _STRIDE):
        known = hash((known, prompt[end - _STRIDE : end]))
        path.append(known)
    return tuple(path)


class PromptOrder:
    """Adding and removing cost O(log n) comparisons of paths."""

    def __init__(self) -> None:
        self._places: list[Place] = []

    def __len__(self) -> int:
        """Sequences in the order."""
        return len(self._places)

    def add(self, place: Place) -> None:
        """Add a sequence."""
        insort(self._places, place)

    def remove(self, place: Place) -> None:
        """Remove a sequence that was added."""
        del self._places[bisect_left(self._places, place)]

    def beginning(self, place: Place, most: int) -> Path | None:
        """The shortest beginning of the sequence's prompt that at most so many sequences share, itself included; None
        if more share all of it.
        """
        index = bisect_left(self._places, place)
        runs = range(max(0, index - most), min(index, len(self._places) - 1 - most) + 1)
        shared = (common_length(self._places[first].path, self._places[first + most].path) for first in runs)
        depth = 1 + max(shared, default=-1)
        return place.path[:depth] if depth <= len(place.path) else None

    def sharing(self, beginning: Path) -> Iterator[Place]:
        """The sequences whose prompts begin so."""
        first = bisect_left(self._places, beginning, key=lambda place: place.path)
        for index in range(first, len(self._places)):
            if self._places[index].path[: len(beginning)] != beginning:
                return
            yield self._places[index]
