"""Sequences sorted by their prompts: prompts with a common prefix, at any depth, are neighbours.

Prompts are compared by hashes of their prefixes, one per `STRIDE` tokens, so that a long house prompt costs few
comparisons. A collision only makes the order slightly worse.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from thothy_ai.engine.scheduling.prefix_groups import common_length
from thothy_ai.engine.scheduling.sequence import Sequence

STRIDE = 32  # tokens; a shorter common beginning is chance

Path = tuple[int, ...]


class PromptPlace(NamedTuple):
    """A sequence's place in the order; `arrival` is the sequence's number."""

    path: Path
    arrival: int
    sequence: Sequence


def path_of(sequence: Sequence) -> Path:
    """Hashes of the prompt's prefixes, the shortest first; they depend on the salt and on the adapter."""
    prompt, known = sequence.request.prompt, hash(sequence.request.salt)
    digest, adapted_from = sequence.branch.digest, sequence.adapted_from
    path = []
    for end in range(STRIDE, len(prompt) + 1, STRIDE):
        known = hash((known, prompt[end - STRIDE : end], digest if end > adapted_from else ""))
        path.append(known)
    return tuple(path)


class PromptOrder:
    """A sorted list: adding and removing cost O(log n) comparisons of paths."""

    def __init__(self) -> None:
        self._places: list[PromptPlace] = []

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: PromptPlace) -> None:
        insort(self._places, place)

    def remove(self, place: PromptPlace) -> None:
        del self._places[bisect_left(self._places, place)]

    def prefix(self, place: PromptPlace, most: int) -> Path | None:
        """The shortest prefix of the sequence's prompt that at most `most` sequences share, itself included; None if
        more of them share the whole prompt.
        """
        index = bisect_left(self._places, place)
        runs = range(max(0, index - most), min(index, len(self._places) - 1 - most) + 1)
        shared = (common_length(self._places[first].path, self._places[first + most].path) for first in runs)
        depth = 1 + max(shared, default=-1)
        return place.path[:depth] if depth <= len(place.path) else None

    def shared(self, place: PromptPlace, most: int) -> set[int]:
        """The lengths, in tokens, of the prompt's common prefixes with at most `most` neighbours on either side."""
        index, path, depths = bisect_left(self._places, place), place.path, set[int]()
        before, after = self._places[max(0, index - most) : index], self._places[index + 1 : index + 1 + most]
        for other in (*before, *after):
            depths.add(common_length(path, other.path) * STRIDE)
        return depths

    def sharing(self, prefix: Path) -> Iterator[PromptPlace]:
        first = bisect_left(self._places, prefix, key=lambda place: place.path)
        for index in range(first, len(self._places)):
            if self._places[index].path[: len(prefix)] != prefix:
                return
            yield self._places[index]
