"""One answer in pieces, so that its JSON texts are brought to their end before the budget is used up.

    [thoughts] ─▶ begin ─▶ head of a call ─▶ its arguments ─▶ tail
                                 ▲                  └───────▶ link ─┐
                                 └──────────────────────────────────┘

The pieces are texts under rules (`ruled.py`), and JSON texts under schemas (`json_schema.py`). Where a piece may end
and another may begin, both go on until a token tells them apart. Thoughts are ended while what must follow still fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.core import MAX_CALLS, AnswerRules, Segments
from thothy_ai.engine.api.errors import BudgetTooSmallError, GrammarError
from thothy_ai.engine.grammar.closing import NEVER
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.lexers import Lexers
from thothy_ai.engine.grammar.ruled import CompiledRules, RuledGrammar
from thothy_ai.engine.grammar.tokens import allow_only
from thothy_ai.engine.grammar.vocabulary import Vocabulary

_GAP = 8  # tokens: more than the white space after thoughts
_KEPT = 4  # a part of the spare budget, one in so many, is kept for what follows thoughts


class _Stage(Enum):
    THOUGHT = auto()
    BEGIN = auto()
    HEAD = auto()
    JSON = auto()
    TAIL = auto()
    LINK = auto()


class CompiledSegments:
    """The pieces. GrammarError, which names the place of a schema that does not compile.

    Literal texts have one division into tokens here, so that it is known how many an answer has at least.
    """

    def __init__(
        self, rules: AnswerRules, segments: Segments, vocabulary: Vocabulary, lexers_of: Callable[[str], Lexers]
    ) -> None:
        def tokens(expression: str) -> list[int]:
            if not expression:
                return []
            literal = CompiledRules(AnswerRules(f"start: {expression}", (), ()), vocabulary)
            return literal.copy(literal)[1].compute_ff_tokens()

        self.opened = segments.opened
        self.thought = CompiledRules(AnswerRules(segments.thought, (), ()), vocabulary) if segments.thought else None
        self.end_of_thought, self.begin = tokens(segments.end_of_thought), tokens(segments.begin)
        self.heads = [tokens(head) for head in segments.heads]
        self.tail, self.link = tokens(segments.tail), tokens(segments.link)
        self.lexers: list[Lexers] = []
        for schema, place in zip(rules.schemas, rules.places, strict=True):
            try:
                self.lexers.append(lexers_of(schema))
            except GrammarError as error:
                raise GrammarError(f"{place}: {error}" if place else str(error), place) from error
        # Tokens that a call has at least, from its head to its tail.
        pairs = zip(self.heads, self.lexers, strict=True)
        self.calls = [len(head) + shortest_of(lexers) + len(self.tail) for head, lexers in pairs]
        self.least = len(self.begin) + min(self.calls)  # without thoughts
        self.shortest = self.least + (len(self.end_of_thought) if self.opened else 0)


def shortest_of(lexers: Lexers) -> int:
    """Tokens that a text of a schema has at least; 0 if that is not known."""
    return 0 if lexers.outline is None else lexers.outline.shortest


class _Segment:
    """A piece that goes on: a literal, of which these tokens are left, or a text of a grammar. `number`: of a head."""

    def __init__(
        self, kind: _Stage, left: Sequence[int] = (), grammar: RuledGrammar | JsonGrammar | None = None, number: int = 0
    ) -> None:
        self.kind, self.grammar, self.number = kind, grammar, number
        self._left = deque(left)

    @property
    def ended(self) -> bool:
        return not self._left if self.grammar is None else self.grammar.finished

    @property
    def may_end(self) -> bool:
        return not self._left if self.grammar is None else self.grammar.matcher.is_accepting()

    def fill_mask(self, row: Tensor) -> None:
        if self.grammar is None:
            allow_only(row.numpy(), [self._left[0]])
        else:
            self.grammar.fill_mask(row)

    def forced(self) -> Sequence[int]:
        return [*self._left] if self.grammar is None else self.grammar.forced()

    def takes(self, token: int) -> bool:
        return self._left[0] == token if self.grammar is None else self.grammar.matcher.validate_tokens([token]) == 1

    def take(self, token: int) -> None:
        if self.grammar is None:
            self._left.popleft()
        else:
            self.grammar.advance(token)


class SegmentedGrammar:
    """Implements `Grammar` for one answer in pieces."""

    def __init__(self, compiled: CompiledSegments, eos: Sequence[int]) -> None:
        self._compiled, self._eos = compiled, eos
        self._left = NEVER  # tokens
        self._thinks_until = 0  # so many are left
        self._may_end, self._calls = False, 0
        self._going: list[_Segment] = []
        self._start()

    @property
    def finished(self) -> bool:
        return self._may_end and not self._going

    def limit(self, budget: int) -> None:
        compiled = self._compiled
        if compiled.shortest > budget:
            says = f"the shortest answer has {compiled.shortest} tokens; the limit is {budget}"
            raise BudgetTooSmallError(says, "max_tokens")
        self._left, kept = budget, (budget - compiled.shortest) // _KEPT
        self._thinks_until = len(compiled.end_of_thought) + compiled.least + _GAP + kept
        self._start()

    def fill_mask(self, row: Tensor) -> None:
        self._end_thought_in_time()
        row.zero_()
        mask = torch.empty_like(row)
        for piece in self._going:
            piece.fill_mask(mask)
            if piece.kind is not _Stage.JSON or self._compiled.tail:
                self._set_ends(mask, allowed=False)
            row |= mask
        if self._may_end:
            self._set_ends(row, allowed=True)

    def may_force_after(self, token: int) -> bool:  # noqa: ARG002  it is asked after each mask
        return False

    def forced(self) -> Sequence[int]:
        self._end_thought_in_time()
        if len(self._going) != 1 or self._may_end:
            return ()
        return [token for token in self._going[0].forced() if token not in self._eos]

    def advance(self, token: int) -> None:
        if token in self._eos and self._may_end:  # of a request that ignores it as an end
            self._going = []
            return
        self._going = [piece for piece in self._going if piece.takes(token)]
        if not self._going:
            raise GrammarError(f"token {token} cannot be taken here")
        self._left -= 1
        self._may_end = False
        for piece in [*self._going]:
            piece.take(token)
            self._follow(piece)

    def _follow(self, piece: _Segment) -> None:
        """Begin what may come after a piece."""
        compiled = self._compiled
        if piece.ended:
            self._going.remove(piece)
        match piece.kind:
            case _Stage.THOUGHT if piece.may_end and all(each is piece for each in self._going):
                self._begin()
            case _Stage.BEGIN | _Stage.LINK if piece.ended:
                self._go_on_in_heads()
            case _Stage.HEAD if piece.ended:
                self._go_on_in_json(piece.number)
            case _Stage.JSON if piece.ended:
                self._may_end = not compiled.tail
                self._calls += 1
                if compiled.tail:
                    self._going.append(_Segment(_Stage.TAIL, compiled.tail))
                roomy = self._left >= len(compiled.link) + min(compiled.calls)
                if compiled.link and roomy and self._calls < MAX_CALLS:
                    self._going.append(_Segment(_Stage.LINK, compiled.link))
            case _Stage.TAIL if piece.ended:
                self._may_end = True

    def _start(self) -> None:
        """Begin with a thought, or what comes after it, or whichever the model likes; with no thought without room."""
        compiled, self._going = self._compiled, []
        if compiled.thought is not None and (compiled.opened or self._left > self._thinks_until):
            self._going = [_Segment(_Stage.THOUGHT, grammar=RuledGrammar(compiled.thought, self._eos))]
        if not (compiled.opened and self._going):
            self._begin()

    def _begin(self) -> None:
        if self._compiled.begin:
            self._going.append(_Segment(_Stage.BEGIN, self._compiled.begin))
        else:
            self._go_on_in_heads()

    def _go_on_in_heads(self) -> None:
        """With all whose calls fit."""
        for number, (head, needed) in enumerate(zip(self._compiled.heads, self._compiled.calls, strict=True)):
            if needed <= self._left and head:
                self._going.append(_Segment(_Stage.HEAD, head, number=number))
            elif needed <= self._left:
                self._go_on_in_json(number)

    def _go_on_in_json(self, number: int) -> None:
        lexers = self._compiled.lexers[number]
        grammar = JsonGrammar(lexers, self._eos)
        if self._left != NEVER:
            grammar.limit(max(shortest_of(lexers), self._left - len(self._compiled.tail)))
        self._going.append(_Segment(_Stage.JSON, grammar=grammar))

    def _end_thought_in_time(self) -> None:
        """Replace a thought that has begun by its end, once no more is left than is kept."""
        match self._going:
            case [_Segment(kind=_Stage.THOUGHT) as piece] if self._left <= self._thinks_until and not piece.may_end:
                self._thinks_until = 0
                self._going = [_Segment(_Stage.THOUGHT, self._compiled.end_of_thought)]

    def _set_ends(self, row: Tensor, *, allowed: bool) -> None:
        words = row.numpy().view(np.uint32)
        for token in self._eos:
            bit = np.uint32(1 << (token & 31))
            words[token >> 5] = words[token >> 5] | bit if allowed else words[token >> 5] & ~bit
