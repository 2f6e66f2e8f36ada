"""The grammars of one schema, and the llguidance lexers that they share.

A lexer builds its states as texts reach them, so that the second mask in a state takes a fifth of the first; but it
serves one thread at a time. A schema therefore has one lexer for few grammars, and as many as there are threads for
many (see `grammar_batch`).

A lexer that reaches one of its limits breaks for all its grammars. They continue on a new lexer each; a grammar that
breaks that one at once fails. Later grammars of the schema share a new lexer.

The work of a lexer is limited from one mask that it computes to the next. Where masks come from elsewhere, tokens use
this up: they are refused then, as if the schema did not allow them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch
from torch import Tensor

from thothy_ai.engine.errors import GrammarError
from thothy_ai.engine.grammar_closing import Closing
from thothy_ai.engine.grammar_completion import completion_of
from thothy_ai.engine.grammar_fields import StateKey, TextFields, TextState
from thothy_ai.engine.grammar_slices import own_slices
from thothy_ai.engine.grammar_tokens import JsonTokens
from thothy_ai.engine.grammar_vocabulary import Choices, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits
    from llguidance._lib import JsonCompileOptions  # named nowhere else

THREADS = min(16, len(os.sched_getaffinity(0)))  # that work on a step's grammars
_COMPACT: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
_ENOUGH_GRAMMARS = 16  # of one lexer, before another is made
_MAX_COPIES = 500  # of one matcher: its lexer grows with their texts
_TOKENS_PER_LEXER = 8  # at least, of a text that has one of its own
_TOKENS_PER_MASK = 200  # of a lexer; `_STEP_FUEL` lasts for 900 or more under schemas of real jobs
_MAX_FORCED_STATES = 20_000  # a schema may force so many characters at its start, and no more
_STEP_FUEL = 50_000  # per mask, 3 ms at most: patterns of many states break at once, others need less than half of it
_MAX_ERROR_CHARS = 300
_ALL = -1  # every bit of an int32
_NONE_YET = -1  # in place of a text's last token


class Lexer:
    """A matcher that is only copied: its copies share its lexer. Owned by its `Lexers`, or by its only grammar.

    It computes a mask after every `tokens_per_mask` tokens: it `needs_mask` then, even of a state whose mask is known.
    """

    def __init__(self, matcher: LLMatcher, tokens_per_mask: int) -> None:
        self._matcher, self._tokens_per_mask = matcher, tokens_per_mask
        self._copies_left = _MAX_COPIES
        self._grammars: WeakSet[JsonGrammar] = WeakSet()
        self._tokens = 0  # that its grammars took since it computed a mask
        self.broken = self.needs_mask = False

    def count_token(self) -> None:
        """One of its grammars takes a token."""
        self._tokens += 1
        self.needs_mask = self._tokens >= self._tokens_per_mask

    def count_mask(self) -> None:
        """It computes a mask."""
        self._tokens, self.needs_mask = 0, False

    @property
    def usable(self) -> bool:
        """Whether it takes new grammars."""
        return self._copies_left > 0 and not self.broken

    @property
    def load(self) -> int:
        """Grammars that use it now."""
        return len(self._grammars)

    def copy(self, grammar: JsonGrammar) -> LLMatcher:
        """A matcher at the start of the text, for this grammar."""
        self._copies_left -= 1
        self._grammars.add(grammar)
        return self._matcher.deep_copy()

    def measured(self) -> LLMatcher:
        """A matcher at the start of the text, for a walk through it that builds states that others will use."""
        return self._matcher.deep_copy()


class Lexers:
    """The lexers of one schema, at most `most` that are shared. Used by any thread; GrammarError if there is none."""

    def __init__(self, schema: str, vocabulary: Vocabulary, most: int) -> None:
        from llguidance import LLMatcher  # noqa: PLC0415  an engine without grammars does not need it

        try:
            self._rules = LLMatcher.grammar_from_json_schema(schema, overrides=_COMPACT)
        except ValueError as error:
            raise GrammarError(f"not a JSON schema: {_clipped(str(error))}") from error
        self._slices, self.vocabulary, self._most = own_slices(schema), vocabulary, most
        self._lock = threading.Lock()
        self._shared: list[Lexer] = []
        trial = self._matcher(_limits(_MAX_FORCED_STATES))
        trial.consume_tokens(trial.compute_ff_tokens())
        _check(trial)
        self.fields = TextFields(schema, vocabulary.tokens)
        self.completion = completion_of(schema, self.share().measured(), self.fields)

    @property
    def tokens(self) -> JsonTokens:
        """The vocabulary's."""
        return self.vocabulary.tokens

    def share(self) -> Lexer:
        """The lexer with the fewest grammars, or one more."""
        with self._lock:
            self._shared = [lexer for lexer in self._shared if lexer.usable]
            least = min(self._shared, key=lambda lexer: lexer.load, default=None)
            if least is None or (least.load >= _ENOUGH_GRAMMARS and len(self._shared) < self._most):
                least = self._lexer(_TOKENS_PER_MASK)
                self._shared.append(least)
            return least

    def alone(self) -> Lexer:
        """A lexer that no other grammar has, which computes all masks."""
        return self._lexer(tokens_per_mask=1)

    def _lexer(self, tokens_per_mask: int) -> Lexer:
        matcher = self._matcher(_limits())
        matcher.compute_ff_tokens()  # builds the first states now, not in a step
        _check(matcher)
        return Lexer(matcher, tokens_per_mask)

    def _matcher(self, limits: LLParserLimits) -> LLMatcher:
        from llguidance import LLMatcher  # noqa: PLC0415  as above

        return LLMatcher(self.vocabulary.with_slices(self._slices), self._rules, log_level=0, limits=limits)


class JsonGrammar:
    """Implements `Grammar` over a copy of a lexer's matcher.

    Grammars with the same `lexer` cannot fill masks at the same time.
    """

    def __init__(self, lexers: Lexers, eos: Sequence[int]) -> None:
        self._lexers, self._eos = lexers, eos
        self._tokens: list[int] = []
        self._state = TextState(lexers.fields)
        self._least_tokens = 0  # that it must have when its lexer breaks, to get another
        self.behind = False  # its matcher, by the last token
        self._failed = False  # its matcher has, and what comes next will tell
        self.lexer = lexers.share()
        self._matcher = self.lexer.copy(self)
        completion = lexers.completion
        self._closing = None if completion is None else Closing(completion, lexers.fields, eos)

    @property
    def matcher(self) -> LLMatcher:
        """After all tokens."""
        if self.behind:
            self.caught_up(consumed=self._matcher.consume_token(self._tokens[-1]))
        return self._matcher

    def goes_on(self, token: int) -> bool:
        """Take a token if all it does is to go on with a text field: the text does not end with it, and nothing is
        forced after it. The matcher gets it later: by `caught_up`, or when it is needed.
        """
        if self.behind or self._failed or not self._state.goes_on(self._tokens, token):
            return False
        self._tokens.append(token)
        self.behind = True
        return True

    @property
    def late(self) -> tuple[LLMatcher, int]:
        """The matcher, and the token that it lacks while it is `behind`."""
        return self._matcher, self._tokens[-1]

    def caught_up(self, *, consumed: bool) -> None:
        """Note that the matcher consumed the token that it lacked, or failed to."""
        self.behind = False
        if consumed:
            self.lexer.count_token()
        else:
            self._failed = not self._continue_alone()

    def state_key(self) -> StateKey | None:
        """What identifies its state, and thus the next mask before `close` has seen it; None if nothing does."""
        return self._state.key(self._tokens)

    def shared_key(self) -> StateKey | None:
        """The same, if a mask that another grammar computed will do."""
        tokens, closing = self._tokens, self._closing
        closes = closing is not None and len(tokens) >= closing.due_at and closing.is_due(tokens)
        return None if closes or self.lexer.needs_mask else self._state.key(tokens)

    @property
    def closes(self) -> bool:
        """Whether `close` must see the next mask."""
        return self._closing is not None and self._closing.is_due(self._tokens)

    def limit(self, budget: int) -> None:
        """From now on, masks lead to the end in time."""
        if self._closing is not None:
            self._closing.limit(budget)

    def close(self, row: Tensor) -> None:
        """Restrict a filled row so that the text ends within its limit."""
        if self._closing is not None and not self.matcher.is_error():
            self._closing.apply(row.numpy(), self.matcher, self._tokens)

    @property
    def tokens(self) -> JsonTokens:
        """Those of its vocabulary."""
        return self._lexers.tokens

    @property
    def choices(self) -> Choices:
        """Those of its vocabulary."""
        return self._lexers.vocabulary.choices

    @property
    def finished(self) -> bool:
        """The JSON value is complete."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fill_mask(self, row: Tensor) -> None:
        """Fill one row."""
        self.compute(row)
        if self.closes:
            self.close(row)

    def compute(self, row: Tensor) -> None:
        """Fill one row with all that the schema allows."""
        self.lexer.count_mask()
        self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        self.correct(row)

    def correct(self, row: Tensor) -> None:
        """Fill the row again if its lexer broke. After an error, allow everything except the end of text, and let
        `advance` raise it: the request must not look finished.
        """
        if not self.matcher.is_error():
            return
        if self._continue_alone():
            self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        if self.matcher.is_error():
            row.fill_(_ALL)
            for token in self._eos:
                row[token // 32] &= _without(token % 32)

    def may_force_after(self, token: int) -> bool:
        """Where a string may end: what follows it is forced more often than not."""
        return token in self._lexers.vocabulary.quotes

    def forced(self) -> Sequence[int]:
        """llguidance's fast-forward tokens."""
        key, last = self._state.forced_key(self._tokens), self._tokens[-1] if self._tokens else _NONE_YET
        known = self._lexers.vocabulary.forced
        tokens = None if key is None else known.of(key, last)
        if tokens is None:
            tokens = self.matcher.compute_ff_tokens()
            if key is not None and not self.matcher.is_error():
                known.keep(key, last, tokens)
        return tokens

    def advance(self, token: int) -> None:
        """Consume one token."""
        if error := self.advanced(token, consumed=self.matcher.consume_token(token)):
            raise error

    def advanced(self, token: int, *, consumed: bool) -> GrammarError | None:
        """Note that the matcher consumed a token, or failed to; returns why the grammar cannot go on, if it cannot."""
        if not consumed and not (self._continue_alone() and self.matcher.consume_token(token)):
            return GrammarError(f"token {token} cannot be taken here: {_error(self.matcher)}")
        self._tokens.append(token)
        self.lexer.count_token()
        return None

    def _continue_alone(self) -> bool:
        """If the lexer broke, consume the text so far on one of its own; False if it broke that.

        It may have broken whatever its error: one that has no work left refuses what comes next.
        """
        self.lexer.broken = True
        if len(self._tokens) < self._least_tokens:
            return False
        self._least_tokens = len(self._tokens) + _TOKENS_PER_LEXER
        try:
            self.lexer = self._lexers.alone()
        except GrammarError:
            return False
        self._matcher = self.lexer.copy(self)
        return self._replay()

    def _replay(self) -> bool:
        """Consume the text so far again, with masks between that give the lexer new work."""
        row = torch.empty(self._lexers.tokens.words, dtype=torch.int32)
        for start in range(0, len(self._tokens), _TOKENS_PER_MASK):
            if not self.matcher.consume_tokens(self._tokens[start : start + _TOKENS_PER_MASK]):
                return False
            self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        return not self.matcher.is_error()


def _check(matcher: LLMatcher) -> None:
    """Raise GrammarError if the schema cannot be used."""
    if matcher.is_error():
        raise GrammarError(_error(matcher))


def _limits(max_lexer_states: int | None = None) -> LLParserLimits:
    """llguidance's own, except for so many states, if given, and for the work per mask."""
    from llguidance import LLParserLimits  # noqa: PLC0415  as above

    return LLParserLimits(max_lexer_states=max_lexer_states, step_lexer_fuel=_STEP_FUEL, verbose_errors=False)


def _without(bit: int) -> int:
    """An int32 with this bit alone cleared."""
    return int(torch.tensor(~(1 << bit), dtype=torch.int64).to(torch.int32))


def _error(matcher: LLMatcher) -> str:
    """What is wrong, on one line."""
    return _clipped(matcher.get_error().removesuffix("<non-verbose/>"))


def _clipped(text: str) -> str:
    """One line of a bounded length: an error quotes the schema."""
    line = " ".join(text[: 4 * _MAX_ERROR_CHARS].split())
    return line if len(line) <= _MAX_ERROR_CHARS else f"{line[:_MAX_ERROR_CHARS]}…"
