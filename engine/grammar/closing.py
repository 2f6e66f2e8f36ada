"""Closes a text under a grammar before its budget is used up, so that it is never cut off.

The distance to the end is the length of the text's shortest end (`reading.py`). The rest of the budget decides how the
text may continue:

    plenty          no restriction
    a few sentences no optional item, key or sentence is begun; strings end with their next sentence
    a few words     no further word is begun in a string that can end
    nothing         the shortest end is taken, token by token

After each allowed token, some end still fits the budget. A share of the rest is kept for later fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from thothy_ai.engine.api.errors import BudgetTooSmallError
from thothy_ai.engine.grammar.position import JsonPosition
from thothy_ai.engine.grammar.reading import Reading
from thothy_ai.engine.grammar.shapes import Shapes
from thothy_ai.engine.grammar.tokens import NUMBER_AND_STOP, SENTENCE_END, Bits, JsonTokens, allow_only

if TYPE_CHECKING:
    from llguidance import LLMatcher

NEVER = 2**62
_SENTENCE = 28  # tokens in which most sentences end
_WORD = 5  # tokens in which most words end
_READ = 128  # tokens after which a text is read further, so that no step has much to read
_RETRY = 16  # tokens until an end is searched for again after none was found
_KEPT = 0.5  # share of the spare budget for choices after the current field
_SLACK = 6  # tokens, for a character's last three bytes and for less compact tokenization
_END = -1  # in a path: the end of text


class _Rest(NamedTuple):
    """A shortest end: its number of tokens, how many of them are free choices, and how many end the open string (a
    large number if none is open).
    """

    tokens: int
    choices: int
    string: int = 2**31


class SchemaOutline:
    """What closing needs to know of a schema. `path`: the tokens of its shortest text, empty if unknown. `shortest`:
    the fewest tokens of a text. Only the token after a number shows that it has ended, so a text that `may_be_number`
    needs one more.
    """

    def __init__(self, shapes: Shapes, tokens: JsonTokens) -> None:
        self.shapes, self.tokens = shapes, tokens
        self.may_be_number = shapes.may_be_number
        reading = Reading.at_start(shapes, tokens)
        found, cost = reading.end(), reading.cost()
        self.path = tokens.divided(found or b"")
        self.shortest = len(self.path)
        self.choices = max(1, 0 if cost is None else cost.choices)


class Closing:
    """The closing of one text, which `limit` starts; `ends` are the tokens that end a text.

    From `due_at` tokens on, `apply` must see each mask; before `calm_until`, only those where a string or a sentence
    may have ended.
    """

    def __init__(self, outline: SchemaOutline, ends: Sequence[int]) -> None:
        self._outline, self._tokens, self._ends = outline, outline.tokens, ends
        self._reading = Reading.at_start(outline.shapes, outline.tokens)
        self._position = JsonPosition()
        self._read = 0  # tokens
        self._budget = NEVER
        self._path: Sequence[int] = ()  # the end that is being taken
        self.due_at = NEVER
        self.calm_until = 0

    def limit(self, budget: int) -> None:
        """Set the text's maximum of tokens; BudgetTooSmallError if the schema's shortest text has more."""
        if (shortest := self._outline.shortest) > budget:
            says = f"the schema's shortest text has {shortest} tokens; the limit is {budget}"
            raise BudgetTooSmallError(says, "max_tokens")
        self._budget, self.due_at = budget, 0

    def copy(self) -> Closing:
        """An independent copy, for a text that continues separately."""
        other = copy(self)
        other._reading, other._position = self._reading.copy(), self._position.copy()
        return other

    def is_due(self, taken: Sequence[int]) -> bool:
        """Whether `apply` must see the mask of the next token."""
        count = len(taken)
        return count >= self.due_at and (count >= self.calm_until or self._tokens.boundaries[taken[-1]] == 1)

    def apply(self, row: Bits, matcher: LLMatcher, taken: Sequence[int]) -> None:
        """Restrict the allowed tokens of `row` if the end is due; `taken` are the text's tokens so far."""
        self._follow(taken)
        if not self._path:
            self._decide(row, matcher, len(taken))
        if self._path:
            allow_only(row, self._ends if self._path[0] == _END else self._path[:1])

    def forced(self, forced: Sequence[int], matcher: LLMatcher, taken: Sequence[int]) -> Sequence[int]:
        """The tokens to take where the grammar forces `forced`, which can be empty; others, if only those leave enough
        of the budget.
        """
        count = len(taken)
        if self._path and self._read == count:
            return [token for token in self._path if token != _END]
        if not forced or count + len(forced) < self.due_at:
            return forced
        self._follow(taken)
        after, left = self._reading.copy(), self._budget - count
        after.feed(b"".join([self._tokens.table[token] for token in forced]))
        cost = after.cost()
        if cost is not None and len(forced) + cost.tokens + self._outline.may_be_number > left:
            self._take_end(matcher)
            return [token for token in self._path if token != _END] or forced
        return forced

    def _follow(self, taken: Sequence[int]) -> None:
        new, table = taken[self._read :], self._tokens.table
        data = b"".join([table[token] for token in new])
        self._position.feed(data)
        self._reading.feed(data)
        for token in new if self._path else ():
            self._path = self._path[1:] if self._path and self._path[0] == token else ()
        self._read = len(taken)

    def _decide(self, row: Bits, matcher: LLMatcher, count: int) -> None:
        """Wait if the end is far off; otherwise narrow the row, or find the end to take."""
        left, shapes = self._budget - count, self._outline.shapes
        rest = self._rest(left)
        if rest is None:
            self.due_at = count + _RETRY
            return
        needed = self._needed(rest)
        enough = needed + shapes.opens + _WORD + _SENTENCE
        ahead = max((left - enough) // (1 + shapes.nested), left - shapes.longest - needed - _SENTENCE)
        if left > enough and ahead < _SENTENCE and self._reading.is_behind:
            # No token can delay the end until the string has ended.
            self.due_at, self.calm_until = count, self._budget - enough
            return
        if left > enough + shapes.nested:
            self.due_at, self.calm_until = count + min(_READ, max(ahead, 1)), 0
            return
        self.due_at, self.calm_until = count, 0
        position = self._position
        if position.in_string:
            hard = rest.tokens + self._inside() + _SLACK
            if left <= (needed if position.in_value_string else hard):
                self._take_string(matcher, whole=left <= rest.tokens)
            elif left <= enough:
                self._narrow(row, last_words=left <= needed + _WORD and rest.string <= 1)
                last = position.last[-1:]
                settled = last.isalnum() or last.isspace()  # neither a mark nor a part of a character
                if left > needed + _WORD and position.in_value_string and not position.in_array and settled:
                    self.calm_until = self._budget - needed - shapes.opens - _WORD
            else:
                _keep(row, self._tokens.in_string_bits)
            return
        _keep(row, self._tokens.between_bits)
        if left <= rest.tokens + max(shapes.opens, shapes.inside) + _SLACK:
            self._keep_fitting(row, matcher, left)
        if left <= enough and not self._path:
            self._narrow(row)

    def _rest(self, left: int) -> _Rest | None:
        """The shortest end, exact if few tokens are left; None if none is known."""
        reading = self._reading
        cost, after = reading.cost(), reading.after_string()
        if cost is None:
            return None
        tokens = cost.tokens + self._outline.may_be_number
        string = 2**31 if after is None else cost.tokens - after.tokens
        rest = _Rest(tokens, (after or cost).choices, string)
        if reading.is_behind and left <= self._needed(rest) + _WORD:
            reading.catch_up()
            return self._rest(left)
        return rest

    def _needed(self, rest: _Rest) -> int:
        """The number of remaining tokens at which the current field must end."""
        spare = max(0, self._budget - self._outline.shortest)
        kept = min(spare, int(_KEPT * spare * rest.choices / self._outline.choices))  # for later fields
        # The end of a string that is not read to its end yet is probably as near as most words' ends.
        likely = rest.tokens - rest.string + _WORD if self._reading.is_behind else rest.tokens
        return _SLACK + max(rest.tokens + self._inside(), likely + kept)

    def _inside(self) -> int:
        """The most tokens by which one token can delay the end of the open string or number."""
        return 0 if self._reading.is_behind else self._outline.shapes.inside

    def _keep_fitting(self, row: Bits, matcher: LLMatcher, left: int) -> None:
        """Keep only tokens after which some end fits; if there are none, take the shortest end."""
        fitting = []
        for token in self._tokens.steps:
            if row[token >> 5] >> (token & 31) & 1:
                after = self._reading.copy()
                after.feed(self._tokens.table[token])
                cost = after.cost()
                if cost is not None and 1 + cost.tokens + self._outline.may_be_number <= left:
                    fitting.append(token)
        if fitting:
            allow_only(row, fitting)
        else:
            self._take_end(matcher)

    def _take_string(self, matcher: LLMatcher, *, whole: bool) -> None:
        """Take the shortest end of the open string, or of the text."""
        end = self._reading.end_of_string()
        if whole or end is None:
            self._take_end(matcher)
        else:
            self._take(self._tokens.divided(end), matcher)

    def _take_end(self, matcher: LLMatcher) -> None:
        end = self._reading.end()
        if end is not None:
            path = self._tokens.divided(end)
            last = end[-1:] or self._position.last[-1:]
            self._take([*path, _END] if self._outline.may_be_number and last.isdigit() else path, matcher)

    def _take(self, path: Sequence[int], matcher: LLMatcher) -> None:
        """Take these tokens next, if the grammar allows them all."""
        count = len(path) - (path[-1:] == [_END])
        if path and (not count or matcher.validate_tokens([*path[:count]]) == count):
            self._path = path

    def _narrow(self, row: Bits, *, last_words: bool = False) -> None:
        """Restrict the row to tokens that lead to an end. `last_words`: the string should end with one of the next two
        tokens.
        """
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
        if not last[-1:].isdigit():
            _keep(row, tokens.bracket_bits)
        elif (row & tokens.bracket_bits).any():
            _keep(row, ~tokens.comma_bits)


def _keep(row: Bits, bits: Bits) -> None:
    """Allow only `bits`, unless that leaves nothing."""
    narrowed = row & bits
    if narrowed.any():
        row[:] = narrowed
