"""Brings a text under a grammar to its end before its budget is used up, so that it is never cut off.

How far the text is from its end is the length of its shortest completion (`completion.py`). What the budget has
beyond that decides:

    plenty          nothing changes
    a few sentences no optional item, key or sentence is begun; strings end with their next sentence
    a few words     no further word is begun in a string that may end
    nothing         the shortest completion is taken, token by token

A share of what remains is kept for the fields that are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thothy_ai.engine.api.errors import BudgetTooSmallError
from thothy_ai.engine.grammar.completion import Completion, Rest
from thothy_ai.engine.grammar.fields import TextFields
from thothy_ai.engine.grammar.position import JsonPosition
from thothy_ai.engine.grammar.tokens import NUMBER_AND_STOP, SENTENCE_END, Bits, allow_only
from thothy_ai.engine.grammar.walk import END, Walker

if TYPE_CHECKING:
    from llguidance import LLMatcher

NEVER = 2**62
_SENTENCE = 28  # tokens in which most sentences end
_WORD = 5  # tokens in which most words end
_RETRY = 16  # tokens after which a walk that found no end is tried again; each time four times as many
_KEPT = 0.5  # of the spare budget, for the choices that follow the current field


class Closing:
    """The closing of one text, which `limit` starts; `ends` are the tokens that end a text.

    From `due_at` tokens on, `apply` must see each mask: before `calm_until` only where a string or a sentence may have
    ended.
    """

    def __init__(self, completion: Completion, fields: TextFields, ends: Sequence[int]) -> None:
        self._completion, self._fields, self._tokens, self._ends = completion, fields, fields.tokens, ends
        self._position = JsonPosition()
        self._read = 0  # tokens
        self._budget = NEVER
        self._path: Sequence[int] = ()  # the completion that is being taken
        self._again = _RETRY
        self.due_at = NEVER
        self.calm_until = 0

    def limit(self, budget: int) -> None:
        """Set the text's maximum of tokens; BudgetTooSmallError if the schema's shortest text has more."""
        if (shortest := self._completion.shortest) > budget:
            raise BudgetTooSmallError(f"the schema's shortest text has {shortest} tokens; the limit is {budget}")
        self._budget, self.due_at = budget, 0

    def is_due(self, taken: Sequence[int]) -> bool:
        """Whether `apply` must see the mask of the token after these."""
        count = len(taken)
        return count >= self.due_at and (count >= self.calm_until or self._tokens.boundaries[taken[-1]] == 1)

    def apply(self, row: Bits, matcher: LLMatcher, taken: Sequence[int]) -> None:
        """Restrict the allowed tokens of `row` if it is time to; `taken` are the text's tokens so far."""
        new, table = taken[self._read :], self._tokens.table
        self._position.feed(b"".join([table[token] for token in new]))
        for token in new if self._path else ():
            self._path = self._path[1:] if self._path and self._path[0] == token else ()
        self._read = len(taken)
        if not self._path:
            self._decide(row, matcher, self._budget - len(taken))
        if self._path:
            allow_only(row, self._ends if self._path[0] == END else self._path[:1])

    def _decide(self, row: Bits, matcher: LLMatcher, left: int) -> None:
        """Wait if the end is far off; otherwise narrow the row, or find the completion to take."""
        # What is known without a walk is no less than the shortest completion.
        rest, after = self._completion.rest(self._position.place), self._after_string()
        if rest is not None and after is not None:
            rest = rest._replace(choices=after.choices)
        if rest is not None and self._waits(left, rest):
            return
        self.calm_until = 0
        if rest is not None and left > self._needed(rest) + _WORD:
            self._narrow(row)
            if self._position.in_string and not self._position.in_array:
                self.calm_until = self._budget - self._needed(rest) - self._completion.opening - _WORD
            return
        rest = self._measured(matcher)
        if rest is None:
            self.due_at = self._budget - left + self._again
            self._again *= 4
        elif not self._waits(left, rest):
            needed = self._needed(rest)
            if left <= rest.tokens + self._completion.inside:
                walk = self._walker(matcher).to_the_end()
                self._path = () if walk is None else walk.tokens
            elif left <= needed and self._position.in_string:
                self._path = self._walker(matcher).to_the_end_of_the_string() or ()
            self._narrow(row, last_words=left <= needed + _WORD and rest.string <= 1)

    def _waits(self, left: int, rest: Rest) -> bool:
        """Whether there is time; sets until when."""
        enough = self._needed(rest) + self._completion.opening + _WORD + _SENTENCE
        self.due_at = self._budget - enough
        return left > enough

    def _needed(self, rest: Rest) -> int:
        """The current field must end once no more tokens are left than these."""
        spare = max(0, self._budget - self._completion.shortest)
        kept = int(_KEPT * spare * rest.choices / self._completion.choices)  # for the fields to come
        return rest.tokens + self._completion.inside + kept

    def _after_string(self) -> Rest | None:
        return self._completion.after_string(self._position.place) if self._position.in_value_string else None

    def _measured(self, matcher: LLMatcher) -> Rest | None:
        """The shortest completion from here; None if no walk finds one."""
        after = self._after_string()
        if after is None:
            walk = self._walker(matcher).to_the_end()
            return None if walk is None else Rest(len(walk.tokens), 0)
        string = self._walker(matcher).to_the_end_of_the_string()
        if string is None:
            return None
        before = len(string) - 1
        return Rest(before + after.tokens, after.choices, before)

    def _walker(self, matcher: LLMatcher) -> Walker:
        return Walker(matcher.deep_copy(), self._fields, self._position)

    def _narrow(self, row: Bits, *, last_words: bool = False) -> None:
        """`last_words`: the string can end with the next token or the one after it, and should."""
        tokens, last = self._tokens, self._position.last
        if self._position.in_string:
            _keep(row, tokens.in_string_bits)
            if SENTENCE_END.search(last) and (row & tokens.quote_bits).any():
                _keep(row, tokens.after_sentence_bits)
            elif NUMBER_AND_STOP.search(last) and (row & tokens.quote_bits).any():
                _keep(row, tokens.digit_or_quote_bits)
            elif last_words:
                _keep(row, tokens.in_word_bits | tokens.end_bits)
            return
        _keep(row, tokens.between_bits)
        if not last[-1:].isdigit():
            _keep(row, tokens.bracket_bits)
        elif (row & tokens.bracket_bits).any():
            _keep(row, ~tokens.comma_bits)


def _keep(row: Bits, bits: Bits) -> None:
    """Allow only `bits`, unless that leaves nothing."""
    narrowed = row & bits
    if narrowed.any():
        row[:] = narrowed
