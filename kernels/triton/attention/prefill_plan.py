"""How a step's prefill attention is divided: into tiles of queries, and into rounds of what is unpacked before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, count
from typing import NamedTuple

from thothy_ai.kernels.paged import AttentionParams

UNPACKED_TOKENS = 32  # of a program that unpacks


class Span(NamedTuple):
    """A sequence that prefills: its first query's place in the step, its queries, and the tokens that it ends with.

    `begin`: the first token that is read. `place`: where the sequence's first token lies among the unpacked ones, or
    would lie if it were read, and so it may be negative.
    """

    member: int
    start: int
    queries: int
    context: int
    begin: int = 0
    place: int = 0

    @property
    def cached(self) -> int:
        """Tokens before its first query."""
        return self.context - self.queries

    @property
    def read(self) -> int:
        return self.context - self.begin

    def within(self, params: AttentionParams, keys: int) -> Span:
        """Under a window, reading begins at the tile of `keys` that holds the first token its first query sees."""
        return self._replace(begin=max(0, params.first_seen(self.cached)) // keys * keys)


class QueryTile(NamedTuple):
    """Where it begins: `token` of the step, `position` in its sequence; `left` of whose queries are not before it.

    `place` is that of the sequence.
    """

    member: int
    token: int
    position: int
    left: int
    place: int = 0


class UnpackTile(NamedTuple):
    """Tokens of a sequence from `position` on; `place` is that of the sequence."""

    member: int
    position: int
    place: int


def prefill_spans(query_lens: Sequence[int], kv_lens: Sequence[int], num_decode: int) -> list[Span]:
    """Those after the decode sequences, the longest context first."""
    starts = accumulate(query_lens, initial=0)
    spans = [Span(*span) for span in zip(count(), starts, query_lens, kv_lens, strict=False)][num_decode:]
    return sorted(spans, key=lambda span: span.context, reverse=True)


def query_tiles(spans: Iterable[Span], tokens: int) -> list[QueryTile]:
    """Tiles of `tokens` queries each, of each sequence first those that see the most keys."""
    return [
        QueryTile(span.member, span.start + first, span.cached + first, span.queries - first, span.place)
        for span in spans
        for first in reversed(range(0, span.queries, tokens))
    ]


def unpack_tiles(spans: Iterable[Span]) -> list[UnpackTile]:
    """All tokens of the sequences that are read."""
    return [
        UnpackTile(span.member, position, span.place)
        for span in spans
        for position in range(span.begin, span.context, UNPACKED_TOKENS)
    ]


def rounds(spans: Iterable[Span], capacity: int) -> list[list[Span]]:
    """The sequences in their order, with their places, in rounds of at most `capacity` tokens; none has more."""
    made: list[list[Span]] = []
    used = capacity
    for span in spans:
        if used + span.read > capacity:
            made.append([])
            used = 0
        made[-1].append(span._replace(place=used - span.begin))
        used += span.read
    return made
