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
    """A drafted token, and those that the grammar forces after it; and the `grammar` after all of them."""

    tokens: tuple[int, ...]
    grammar: Grammar | None


@dataclass(eq=False, slots=True)
class DraftedTokens:
    """The spans that may follow a sequence's tokens from position `start` on.

    After each span, a token is drawn; where masks leave no choice (`forcing`, spans before the draw), the draw gives
    way to what is forced. `taken`: tokens that were right.
    """

    start: int
    spans: Seq[DraftSpan]
    forcing: set[int] = field(default_factory=set)
    taken: int = 0

    @property
    def tokens(self) -> list[int]:
        return [token for span in self.spans for token in span.tokens]

    @property
    def draws(self) -> dict[int, int]:
        """By the position of each token that is drawn after a span, how many spans are before it."""
        found, position = {}, self.start
        for number, span in enumerate(self.spans, 1):
            position += len(span.tokens)
            found[position] = number
        return found

    def grammar_at(self, position: int) -> Grammar | None:
        """The grammar before the draw at this position, after a span."""
        return self.spans[self.draws[position] - 1].grammar


class DraftRoom(NamedTuple):
    """A sequence that draws a token in a step, and how many drafted tokens it has room for."""

    sequence: Sequence
    tokens: int


class Drafter(Protocol):
    """Chooses the drafts of a step."""

    def choose(self, rooms: Seq[DraftRoom], tokens: int, places: int) -> Mapping[Sequence, DraftedTokens]:
        """Drafts of at most `places` tokens together, for a step that computes so many `tokens` without them."""
        ...
