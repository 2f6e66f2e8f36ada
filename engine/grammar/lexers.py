"""The llguidance lexers that the grammars of one schema share.

A lexer builds its states as texts reach them, so that the second mask in a state takes a fifth of the first one's time;
but it serves one thread at a time. A schema therefore has one lexer for few grammars, and up to one per thread for many
(see `batch.py`).

A lexer that reaches one of its limits breaks for all its grammars. Each of them continues on a new, separate lexer, and
fails if it breaks that one at once. Later grammars of the schema share a new lexer.

A lexer's work is limited between two masks that it computes. If masks come from elsewhere, tokens alone use up this
fuel, and are then refused as if the schema did not allow them.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np
import torch

from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.closing import SchemaOutline
from thothy_ai.engine.grammar.dialect import source_of
from thothy_ai.engine.grammar.fields import TextFields
from thothy_ai.engine.grammar.keywords import UnknownError
from thothy_ai.engine.grammar.shapes import Shapes
from thothy_ai.engine.grammar.slices import own_slices
from thothy_ai.engine.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits

log = logging.getLogger(__name__)

THREADS = min(16, len(os.sched_getaffinity(0)))  # threads for a step's grammars
_ENOUGH_GRAMMARS = 16  # per lexer, before another one is made
_MAX_COPIES = 500  # per matcher; its lexer grows with their texts
_TOKENS_PER_MASK = 200  # per lexer; `_STEP_FUEL` lasts for 900 or more under schemas of real jobs
_STEP_FUEL = 200_000  # per mask, at most 14 ms; llguidance's own limit, far above the needs of real jobs
_TRIED = 4  # tokens of the shortest text whose masks are computed before a schema is accepted
_MAX_ERROR_CHARS = 300


class Lexer:
    """A matcher that is only copied; the copies share its lexer. Owned by its `Lexers`, or by its only grammar.

    After every `tokens_per_mask` tokens it `needs_mask`: the next mask must be computed, even if it is remembered.
    """

    def __init__(self, matcher: LLMatcher, tokens_per_mask: int) -> None:
        self._matcher, self._tokens_per_mask = matcher, tokens_per_mask
        self._copies_left = _MAX_COPIES
        self._grammars: WeakSet[object] = WeakSet()
        self._tokens = 0  # tokens of its grammars since it last computed a mask
        self.broken = self.needs_mask = False

    def count_tokens(self, number: int) -> None:
        self._tokens += number
        self.needs_mask = self._tokens >= self._tokens_per_mask

    def count_mask(self) -> None:
        self._tokens, self.needs_mask = 0, False

    @property
    def usable(self) -> bool:
        """Whether it takes new grammars."""
        return self._copies_left > 0 and not self.broken

    @property
    def load(self) -> int:
        """Grammars that use it now."""
        return len(self._grammars)

    def copy(self, grammar: object) -> LLMatcher:
        """A matcher at the start of the text for this grammar, which counts in `load` while it lives."""
        self._copies_left -= 1
        self._grammars.add(grammar)
        return self._matcher.deep_copy()

    def measured(self) -> LLMatcher:
        """A matcher at the start of the text, for a walk that builds states for other texts."""
        return self._matcher.deep_copy()


class Lexers:
    """The lexers of one schema, of which at most `most` are shared. Can be used by any thread; GrammarError if the
    schema does not compile.
    """

    def __init__(self, schema: str, vocabulary: Vocabulary, most: int) -> None:
        from llguidance import LLMatcher  # noqa: PLC0415  an engine without grammars does not need it

        schema, colon, options = source_of(schema)
        try:
            self._rules = LLMatcher.grammar_from_json_schema(schema, overrides=options)
        except ValueError as error:
            raise GrammarError(f"not a JSON schema: {_clipped(str(error))}") from error
        self._slices, self.vocabulary, self._most = own_slices(schema), vocabulary, most
        self._lock = threading.Lock()
        self._shared: list[Lexer] = []
        self._sliced = vocabulary.has(self._slices)
        start = self.share().measured()
        start.consume_tokens(start.compute_ff_tokens())
        self._try(start)
        self.fields = TextFields(schema, vocabulary.tokens, spelling=str(options))
        self.outline = self._outline(schema, colon.encode())

    def _outline(self, schema: str, colon: bytes) -> SchemaOutline | None:
        """The schema's outline; None if the ends of its texts are unknown."""
        tokens = self.vocabulary.tokens
        try:
            outline = SchemaOutline(Shapes(schema, tokens, colon), tokens)
        except UnknownError as error:
            log.info("texts of a schema may be cut off: %s", error)
            return None
        walk = self.share().measured()
        for token in outline.path[:_TRIED]:
            if not walk.consume_token(token):
                return None
            self._try(walk)
        if not outline.path or not walk.consume_tokens(outline.path[_TRIED:]) or not walk.is_accepting():
            return None
        outline.shortest += not walk.is_stopped()
        return outline

    def _try(self, matcher: LLMatcher) -> None:
        """Compute a mask; GrammarError if the grammar is too complex for it."""
        row = np.empty(self.vocabulary.tokens.words, np.int32)
        matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        _check(matcher)

    def share(self) -> Lexer:
        """The lexer with the fewest grammars, or a new one."""
        with self._lock:
            if not self._sliced and self.vocabulary.has(self._slices):
                self._sliced, self._shared = True, []  # with slices of its own, a mask takes a fifth of the time
            self._shared = [lexer for lexer in self._shared if lexer.usable]
            least = min(self._shared, key=lambda lexer: lexer.load, default=None)
            if least is None or (least.load >= _ENOUGH_GRAMMARS and len(self._shared) < self._most):
                least = self._lexer(_TOKENS_PER_MASK)
                self._shared.append(least)
            return least

    def alone(self) -> Lexer:
        """A lexer for one grammar, which computes all of its masks."""
        return self._lexer(tokens_per_mask=1)

    def _lexer(self, tokens_per_mask: int) -> Lexer:
        from llguidance import LLMatcher  # noqa: PLC0415  as above

        matcher = LLMatcher(self.vocabulary.with_slices(self._slices), self._rules, log_level=0, limits=limits())
        matcher.compute_ff_tokens()  # builds the first states now, not in a step
        _check(matcher)
        return Lexer(matcher, tokens_per_mask)


def replay(matcher: LLMatcher, tokens: list[int], words: int) -> bool:
    """Have a matcher consume a text, and compute masks [words] in between to renew its fuel; False if it cannot."""
    row = torch.empty(words, dtype=torch.int32)
    for start in range(0, len(tokens), _TOKENS_PER_MASK):
        if not matcher.consume_tokens(tokens[start : start + _TOKENS_PER_MASK]):
            return False
        matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
    return not matcher.is_error()


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(error_of(matcher))


def limits() -> LLParserLimits:
    """llguidance's limits, with our own for the work per mask."""
    from llguidance import LLParserLimits  # noqa: PLC0415  as above

    return LLParserLimits(step_lexer_fuel=_STEP_FUEL, verbose_errors=False)


def error_of(matcher: LLMatcher) -> str:
    """The matcher's error, on one line."""
    return _clipped(matcher.get_error().removesuffix("<non-verbose/>"))


def _clipped(text: str) -> str:
    """The text as one line of bounded length, since an error can quote the whole schema."""
    line = " ".join(text[: 4 * _MAX_ERROR_CHARS].split())
    return line if len(line) <= _MAX_ERROR_CHARS else f"{line[:_MAX_ERROR_CHARS]}…"
