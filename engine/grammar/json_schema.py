"""One text under a JSON schema, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.closing import Closing
from thothy_ai.engine.grammar.fields import StateKey, TextState
from thothy_ai.engine.grammar.lexers import Lexers, error_of, replay
from thothy_ai.engine.grammar.tokens import allow_all_but

if TYPE_CHECKING:
    from llguidance import LLMatcher

_TOKENS_PER_LEXER = 8  # fewest tokens of a text that gets a separate lexer
_NONE_YET = -1  # the last token of an empty text


class JsonGrammar:
    """Implements `Grammar` over a copy of a lexer's matcher; one grammar of a `lexer` can fill a mask at a time."""

    def __init__(self, lexers: Lexers, eos: Sequence[int]) -> None:
        self._lexers, self._eos = lexers, eos
        self.tokens, self.choices = lexers.fields.tokens, lexers.vocabulary.choices
        self._tokens: list[int] = []
        self._state = TextState(lexers.fields)
        self._least_tokens = 0  # tokens needed to get another lexer when this one breaks
        self.behind = 0  # number of last tokens that the matcher has missed
        self._shares = False  # uses another grammar's matcher until it must take a token
        self._failed = False  # its matcher broke; the next token raises the error
        self.lexer = lexers.share()
        self._matcher = self.lexer.copy(self)
        self._closing = None if lexers.outline is None else Closing(lexers.outline, eos)

    @property
    def matcher(self) -> LLMatcher:
        """The matcher after all tokens, caught up if need be."""
        self._own_matcher()
        if self.behind:
            self.caught_up(consumed=self._matcher.consume_tokens(self._tokens[-self.behind :]))
        return self._matcher

    def _own_matcher(self) -> None:
        if self._shares:
            self._matcher, self._shares = self._matcher.deep_copy(), False

    def allows(self, tokens: list[int]) -> int:
        """How many of these tokens the grammar allows next, in sequence."""
        return 0 if self._failed else self.matcher.validate_tokens(tokens)

    def after(self, token: int) -> tuple[JsonGrammar, Sequence[int]] | None:
        """A copy of the grammar after one more allowed token, and the tokens forced after it, which the copy has
        taken. None if no further token is drawn, or if `close` must see this grammar's mask.
        """
        if self.closes:
            return None
        other: JsonGrammar = object.__new__(JsonGrammar)
        other.__dict__ |= self.__dict__  # in a third of the time that `copy` takes
        other._tokens, other._state, other._shares = [*self._tokens], self._state.copy(), True
        inside = other.extend_field(token)
        if self._closing is not None and (other.closes or not inside):  # else nothing changes it
            other._closing = self._closing.copy()
        if inside:
            return other, ()
        other.advance(token)
        forced = () if other.finished or not other.may_force_after(token) else other.forced()
        for each in forced:
            other.advance(each)
        return None if other.finished else (other, forced)

    def extend_field(self, token: int) -> bool:
        """Take a token if it only adds characters to a text field, so that the text does not end and nothing is forced.
        The matcher gets it later, before `caught_up` or when needed.
        """
        if self._failed or not self._state.extend_field(self._tokens, token):
            return False
        self._tokens.append(token)
        self.behind += 1
        return True

    def late(self) -> tuple[LLMatcher, int]:
        """The matcher of a grammar that is `behind`, given all missed tokens except the last, and that last token."""
        self._own_matcher()
        if self.behind > 1:
            self._matcher.consume_tokens(self._tokens[-self.behind : -1])
            self.lexer.count_tokens(self.behind - 1)
            self.behind = 1
        return self._matcher, self._tokens[-1]

    def caught_up(self, *, consumed: bool) -> None:
        """Record whether the matcher consumed the missed tokens."""
        if consumed:
            self.lexer.count_tokens(self.behind)
        else:
            self._failed = not self._continue_alone()
        self.behind = 0

    def state_key(self) -> StateKey | None:
        """The key of its state, and thus of the next mask before `close` restricts it; None if unknown."""
        return self._state.key(self._tokens)

    def shared_key(self) -> StateKey | None:
        """The key, if a mask computed by another grammar can be used."""
        tokens, closing = self._tokens, self._closing
        # `closes`, inlined since this runs for each row of each step.
        closes = closing is not None and len(tokens) >= closing.due_at and closing.is_due(tokens)
        return None if closes or self.lexer.needs_mask else self._state.key(tokens)

    @property
    def closes(self) -> bool:
        """Whether `close` must see the next mask."""
        return self._closing is not None and self._closing.is_due(self._tokens)

    def limit(self, budget: int) -> None:
        if self._closing is not None:
            self._closing.limit(budget)

    def close(self, row: Tensor) -> None:
        """Restrict a filled row so that the text ends within its limit."""
        if self._closing is not None and not self.matcher.is_error():
            self._closing.apply(row.numpy(), self.matcher, self._tokens)

    @property
    def finished(self) -> bool:
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fill_mask(self, row: Tensor) -> None:
        self.compute(row)
        if self.closes:
            self.close(row)

    def compute(self, row: Tensor) -> None:
        """Fill a row with everything that the schema allows."""
        self.lexer.count_mask()
        self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        self.correct(row)

    def correct(self, row: Tensor) -> None:
        """Fill the row again if the lexer broke. After an error, allow everything except the end of text, so that the
        request does not look finished and `advance` raises the error.
        """
        if not self.matcher.is_error():
            return
        if self._continue_alone():
            self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        if self.matcher.is_error():
            self._failed = True
            allow_all_but(row, self._eos)

    def may_force_after(self, token: int) -> bool:
        return token in self.tokens.with_quote  # tokens after a string are mostly forced

    def forced(self) -> Sequence[int]:
        key, last = self._state.forced_key(self._tokens), self._tokens[-1] if self._tokens else _NONE_YET
        known = self._lexers.vocabulary.forced
        tokens = None if key is None else known.of(key, last)
        if tokens is None:
            tokens = self.matcher.compute_ff_tokens()
            if key is not None and not self.matcher.is_error():
                known.keep(key, last, tokens)
        return tokens if self._closing is None else self._closing.forced(tokens, self.matcher, self._tokens)

    def advance(self, token: int) -> None:
        if error := self.advanced(token, consumed=self.matcher.consume_token(token)):
            raise error

    def advanced(self, token: int, *, consumed: bool) -> GrammarError | None:
        """Record whether the matcher consumed a token; returns the error if the grammar cannot continue."""
        if not consumed and not (self._continue_alone() and self.matcher.consume_token(token)):
            return GrammarError(f"token {token} cannot be taken here: {error_of(self.matcher)}")
        self._tokens.append(token)
        self.lexer.count_tokens(1)
        return None

    def _continue_alone(self) -> bool:
        """Consume the text so far on a separate lexer; False if the text breaks that one as well."""
        self.lexer.broken = True  # without fuel, a lexer also refuses allowed tokens
        if len(self._tokens) < self._least_tokens:
            return False
        self._least_tokens = len(self._tokens) + _TOKENS_PER_LEXER
        try:
            self.lexer = self._lexers.alone()
        except GrammarError:
            return False
        self._matcher = self.lexer.copy(self)
        return replay(self._matcher, self._tokens, self.tokens.words)
