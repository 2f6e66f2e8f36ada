"""Drafts of a step: likely next tokens of a sequence, computed with its last one.

The draw after a token depends only on the tokens up to it, the seed and the position. A draft is therefore right if and
only if it equals the sequence's draw at its position, and outputs are the same as without drafts.
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
    """A drafted token, the tokens forced after it, and the `grammar` after all of them."""

    tokens: Seq[int]
    grammar: Grammar | None


@dataclass(eq=False, slots=True)
class DraftedTokens:
    """Drafted tokens of a sequence from position `start` on. A token is drawn before each of them and after the last.

    `spans`: those of the grammar, which can have fewer tokens; None without a grammar, or until they are known. At the
    positions in `forcing`, the mask leaves no choice, and the forced token replaces the draw. `taken`: how many tokens
    were right.
    """

    start: int
    tokens: list[int]
    spans: Seq[DraftSpan] | None = None
    forcing: set[int] = field(default_factory=set)
    taken: int = 0

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.tokens)


class DraftRoom(NamedTuple):
    """A sequence that draws a token in a step, and how many drafted tokens it has room for."""

    sequence: Sequence
    tokens: int


class Drafter(Protocol):
    """Chooses the drafts of a step."""

    def choose(self, rooms: Seq[DraftRoom], tokens: int, places: int) -> Mapping[Sequence, DraftedTokens]:
        """Drafts of at most `places` tokens in all, for a step that computes `tokens` tokens without them."""
        ...
