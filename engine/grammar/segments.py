"""One answer in pieces, so that its JSON texts are closed before the budget is used up.

    [thoughts] ─▶ begin ─▶ head of a call ─▶ its arguments ─▶ tail
                                 ▲                  └───────▶ link ─┐
                                 └──────────────────────────────────┘

Arguments are one JSON text or pairs; a pair has a key, a value, and a literal text after the value.

The pieces are texts under rules (`ruled.py`), and JSON texts under schemas (`json_schema.py`). If one piece may end and
another may begin, both are followed until a token distinguishes them. Thoughts are ended while the required rest of the
answer still fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.core import MAX_CALLS, AnswerRules, PairSegment, Segments
from thothy_ai.engine.api.errors import BudgetTooSmallError, GrammarError
from thothy_ai.engine.grammar.bare import BareEnds, BareText
from thothy_ai.engine.grammar.closing import NEVER
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.lexers import Lexers
from thothy_ai.engine.grammar.ruled import CompiledRules, RuledGrammar
from thothy_ai.engine.grammar.tokens import allow_only
from thothy_ai.engine.grammar.vocabulary import Vocabulary

_GAP = 8  # tokens; more than the white space around thoughts
_KEPT = 4  # one part in this many of the spare budget is kept for the answer after thoughts


class _Stage(Enum):
    THOUGHT = auto()
    BEGIN = auto()
    HEAD = auto()
    JSON = auto()
    KEY = auto()
    VALUE = auto()
    AFTER = auto()
    TAIL = auto()
    LINK = auto()


class _Pair(NamedTuple):
    """An argument: its key as the first one and after others, and its value, whose fewest tokens, including the text
    after it, are `least`. `rest`: the fewest tokens of the call after it. `values`: enumerated values, each with the
    text after it. `text`: strings without quotes, and their ends.
    """

    keys: tuple[list[int], list[int]]
    after: list[int]
    required: bool
    least: int
    rest: int
    lexers: Lexers | None = None
    values: Sequence[list[int]] = ()
    text: tuple[CompiledRules, BareEnds] | None = None


class CompiledSegments:
    """The compiled pieces. GrammarError names the place of a schema that does not compile.

    A literal text has one fixed division into tokens, so that the fewest tokens of an answer are known.
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
        self.pairs = [self._compiled(tokens, pairs, segments.between, vocabulary) for pairs in segments.pairs]
        # The fewest tokens of each call, from its head to its tail.
        of_pairs = [self.rest_of(number, 0) for number in range(len(self.pairs))]
        least = of_pairs or [shortest_of(lexers) + len(self.tail) for lexers in self.lexers]
        self.calls = [len(head) + after for head, after in zip(self.heads, least, strict=True)]
        self.least = len(self.begin) + min(self.calls)  # without thoughts
        self.shortest = self.least + (len(self.end_of_thought) if self.opened else 0)

    def rest_of(self, number: int, at: int) -> int:
        """The fewest tokens of this call from its pair `at` on."""
        if at == len(self.pairs[number]):
            return len(self.tail)
        pair = self.pairs[number][at]
        return pair.rest + (len(pair.keys[1]) + pair.least if pair.required else 0)

    def _compiled(
        self,
        tokens: Callable[[str], list[int]],
        pairs: Sequence[PairSegment],
        between: str,
        vocabulary: Vocabulary,
    ) -> list[_Pair]:
        found: list[_Pair] = []
        rest = len(self.tail)
        for pair in reversed(pairs):
            key, after = tokens(pair.key), tokens(pair.after)
            lexers = self.lexers[pair.schema] if pair.schema >= 0 else None
            values = [[*tokens(text), *after] for text in pair.texts]
            text = None
            least = [*map(len, values), *([] if lexers is None else [shortest_of(lexers) + len(after)])]
            if pair.text:
                ends = BareEnds(pair.strings, vocabulary.tokens)
                text = CompiledRules(AnswerRules(pair.text, (), ()), vocabulary), ends
                least.append(len(ends.shortest) + len(after))
            keys = key, tokens(f"{between} {pair.key}")
            found.insert(0, _Pair(keys, after, pair.required, min(least), rest, lexers, values, text))
            rest += len(keys[1]) + min(least) if pair.required else 0
        return found


def shortest_of(lexers: Lexers) -> int:
    """The fewest tokens of a text of a schema; 0 if unknown."""
    return 0 if lexers.outline is None else lexers.outline.shortest


class _Segment:
    """A piece in progress: a literal with its remaining tokens, or a text of a grammar. `number`: of its head; `at`: of
    its pair. `text`: a string without quotes.
    """

    def __init__(
        self,
        kind: _Stage,
        left: Sequence[int] = (),
        grammar: RuledGrammar | JsonGrammar | None = None,
        number: int = 0,
        at: int = 0,
        text: BareText | None = None,
    ) -> None:
        self.kind, self.grammar, self.number, self.at, self.text = kind, grammar, number, at, text
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

    def may_go_on_with(self, tokens: Sequence[int]) -> bool:
        """Whether the piece can continue with these tokens."""
        grammar = self.grammar
        return grammar is not None and bool(tokens) and grammar.matcher.validate_tokens([*tokens]) == len(tokens)

    def take(self, token: int) -> None:
        if self.grammar is None:
            self._left.popleft()
        else:
            self.grammar.advance(token)
        if self.text is not None:
            self.text.feed(token)


class SegmentedGrammar:
    """Implements `Grammar` for one answer in pieces."""

    def __init__(self, compiled: CompiledSegments, eos: Sequence[int]) -> None:
        self._compiled, self._eos = compiled, eos
        self._left = NEVER  # tokens
        self._thinks_until = 0  # number of tokens left at which thoughts end
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
        if token in self._eos and self._may_end:  # in a request with `ignore_eos`
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
        """Begin the pieces that can follow a piece."""
        if piece.ended:
            self._going.remove(piece)
        match piece.kind:
            case _Stage.THOUGHT if piece.may_end and all(each is piece for each in self._going):
                self._begin()
            case _Stage.BEGIN | _Stage.LINK if piece.ended:
                self._go_on_in_heads()
            case _Stage.HEAD if piece.ended:
                self._go_on_in_arguments(piece.number)
            case _Stage.KEY if piece.ended:
                self._go_on_in_value(piece.number, piece.at)
            case _Stage.VALUE:
                self._follow_value(piece)
            case _Stage.AFTER if piece.ended:
                self._go_on_in_pairs(piece.number, piece.at + 1, first=False)
            case _Stage.JSON if piece.ended:
                self._end_call()
            case _Stage.TAIL if piece.ended:
                self._may_end = True

    def _start(self) -> None:
        """Begin with a thought, with what follows it, or let the model choose; without room, skip the thought."""
        compiled, self._going = self._compiled, []
        if compiled.thought is not None and (compiled.opened or self._left > self._thinks_until + _GAP):
            self._going = [_Segment(_Stage.THOUGHT, grammar=RuledGrammar(compiled.thought, self._eos))]
        if not (compiled.opened and self._going):
            self._begin()

    def _begin(self) -> None:
        if self._compiled.begin:
            self._going.append(_Segment(_Stage.BEGIN, self._compiled.begin))
        else:
            self._go_on_in_heads()

    def _go_on_in_heads(self) -> None:
        """Continue with the heads of all calls that fit."""
        for number, (head, needed) in enumerate(zip(self._compiled.heads, self._compiled.calls, strict=True)):
            if needed <= self._left and head:
                self._going.append(_Segment(_Stage.HEAD, head, number=number))
            elif needed <= self._left:
                self._go_on_in_arguments(number)

    def _go_on_in_arguments(self, number: int) -> None:
        if self._compiled.pairs:
            self._go_on_in_pairs(number, 0, first=True)
            return
        lexers = self._compiled.lexers[number]
        grammar = JsonGrammar(lexers, self._eos)
        if self._left != NEVER:
            grammar.limit(max(shortest_of(lexers), self._left - len(self._compiled.tail)))
        self._going.append(_Segment(_Stage.JSON, grammar=grammar))

    def _end_call(self) -> None:
        compiled = self._compiled
        self._may_end = not compiled.tail
        self._calls += 1
        if compiled.tail:
            self._going.append(_Segment(_Stage.TAIL, compiled.tail))
        roomy = self._left >= len(compiled.link) + min(compiled.calls)
        if compiled.link and roomy and self._calls < MAX_CALLS:
            self._going.append(_Segment(_Stage.LINK, compiled.link))

    def _go_on_in_pairs(self, number: int, start: int, *, first: bool) -> None:
        """Continue with all arguments that can come next and fit, or with the end of the call."""
        for at, pair in enumerate(self._compiled.pairs[number][start:], start):
            key = pair.keys[0 if first else 1]
            if pair.required or len(key) + pair.least + pair.rest <= self._left:
                self._going.append(_Segment(_Stage.KEY, key, number=number, at=at))
            if pair.required:
                return
        self._end_call()

    def _go_on_in_value(self, number: int, at: int) -> None:
        pair = self._compiled.pairs[number][at]
        for value in pair.values:
            if len(value) + pair.rest <= self._left:
                self._going.append(_Segment(_Stage.AFTER, value, number=number, at=at))
        if pair.lexers is not None:
            json = JsonGrammar(pair.lexers, self._eos)
            if self._left != NEVER:
                spare = self._left - pair.rest - len(pair.after)
                json.limit(max(shortest_of(pair.lexers), spare))
            self._going.append(_Segment(_Stage.VALUE, grammar=json, number=number, at=at))
        elif pair.text is not None:
            rules, ends = pair.text
            if len(ends.shortest) + len(pair.after) + pair.rest <= self._left:
                text = RuledGrammar(rules, self._eos)
                piece = _Segment(_Stage.VALUE, grammar=text, number=number, at=at, text=BareText(ends))
                self._going.append(piece)
                self._follow_value(piece)

    def _follow_value(self, piece: _Segment) -> None:
        """Begin what comes after a value that can end here. Without room for more, a value without quotes ends at once
        if it can, or by its shortest end.
        """
        pair, text = self._compiled.pairs[piece.number][piece.at], piece.text
        room = self._left - len(pair.after) - pair.rest
        if piece.may_end:
            if text is not None and room < text.ends.delay:
                self._going = [each for each in self._going if each is not piece]
            if pair.after:
                self._going.append(_Segment(_Stage.AFTER, pair.after, number=piece.number, at=piece.at))
            else:
                self._go_on_in_pairs(piece.number, piece.at + 1, first=False)
        elif text is not None and room < text.ends.far:
            end = text.end()
            if end is not None and room < end.num_bytes + text.ends.delay and piece.may_go_on_with(end.tokens):
                rest = _Segment(_Stage.VALUE, end.tokens, number=piece.number, at=piece.at)
                self._going = [rest if each is piece else each for each in self._going]

    def _end_thought_in_time(self) -> None:
        """Replace a begun thought by its end, once only the kept tokens are left, at a place where it can end: not in
        its opening mark, and not within a character.
        """
        end = self._compiled.end_of_thought
        match self._going:
            case [_Segment(kind=_Stage.THOUGHT, grammar=RuledGrammar() as text) as piece] if (
                self._left <= self._thinks_until and not piece.may_end and text.matcher.validate_tokens(end) == len(end)
            ):
                self._thinks_until = 0
                self._going = [_Segment(_Stage.THOUGHT, end)]

    def _set_ends(self, row: Tensor, *, allowed: bool) -> None:
        words = row.numpy().view(np.uint32)
        for token in self._eos:
            bit = np.uint32(1 << (token & 31))
            words[token >> 5] = words[token >> 5] | bit if allowed else words[token >> 5] & ~bit
