"""Drafts of a step: tokens that a sequence may have next, which are computed with its last one.

The draw after a token depends on the tokens up to it, on the seed and on the position, and on nothing else. A draft is
therefore right if and only if it equals what the sequence draws at its place: outputs are the same as without drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from thothy_ai.engine.scheduling.sequence import Sequence

if TYPE_CHECKING:
    from thothy_ai.engine.grammar.compiler import Grammar


class DraftSpan(NamedTuple):
    """A drafted token and those that are forced after it; and the `grammar` after all of them."""

    tokens: Seq[int]
    grammar: Grammar | None


@dataclass(eq=False, slots=True)
class DraftedTokens:
    """The tokens that a sequence may have from position `start` on: before each and behind the last, one is drawn.

    `spans` are those of a sequence without a grammar, until the grammar's are known, which may have fewer tokens. At
    the positions in `forcing`, masks leave no choice: the draw gives way to what is forced. `taken`: tokens that were
    right.
    """

    start: int
    tokens: list[int]
    spans: Seq[DraftSpan] = field(init=False)
    forcing: set[int] = field(default_factory=set)
    taken: int = 0

    def __post_init__(self) -> None:
        self.spans = [DraftSpan((token,), None) for token in self.tokens]

    @property
    def end(self) -> int:
        """The position behind the last token."""
        return self.start + len(self.tokens)


class DraftRoom(NamedTuple):
    """A sequence that draws a token in a step, and how many drafted tokens it has room for."""

    sequence: Sequence
    tokens: int


class Drafter(Protocol):
    """Chooses the drafts of a step."""

    def choose(self, rooms: Seq[DraftRoom], tokens: int, places: int) -> Mapping[Sequence, DraftedTokens]:
        """Drafts of at most `places` tokens together, for a step that computes so many `tokens` without them."""
        ...
