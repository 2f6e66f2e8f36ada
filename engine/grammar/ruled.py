"""One text, token by token, under the rules of an answer, which can contain JSON schemas."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from thothy_ai.engine.api.core import AnswerRules
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.grammar.dialect import source_of
from thothy_ai.engine.grammar.lexers import Lexer, error_of, limits
from thothy_ai.engine.grammar.tokens import allow_all_but
from thothy_ai.engine.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

_AS_CALLED = {"item_separator": ", ", "key_separator": ": "}  # as templates write calls' arguments


class CompiledRules:
    """A matcher of rules, and its copies. GrammarError, which names the place of a schema that does not compile."""

    def __init__(self, rules: AnswerRules, vocabulary: Vocabulary) -> None:
        parts = [rules.lark]
        for at, (schema, place) in enumerate(zip(rules.schemas, rules.places, strict=True)):
            try:
                rewritten = source_of(schema)
                options = rewritten.options | (_AS_CALLED if place else {})  # arguments of calls have a place
                source = json.dumps(json.loads(rewritten.schema) | {"x-guidance": options})
                _matcher(f"start: %json {source}", vocabulary)
            except GrammarError as error:
                raise GrammarError(f"{place}: {error}" if place else str(error), place) from error
            parts.append(f"schema_{at}: %json {source}")
        self._lark, self._vocabulary = "\n".join(parts), vocabulary
        self._lock, self._lexer = threading.Lock(), self._new_lexer()

    def copy(self, grammar: object) -> tuple[Lexer, LLMatcher]:
        """A matcher at the start of the text for this grammar, and its lexer."""
        with self._lock:
            if not self._lexer.usable:
                self._lexer = self._new_lexer()
            return self._lexer, self._lexer.copy(grammar)

    def _new_lexer(self) -> Lexer:
        return Lexer(_matcher(self._lark, self._vocabulary), tokens_per_mask=1)


class RuledGrammar:
    """Implements `Grammar` over a copy of the rules' matcher. Its text can be cut off, since the distance to its end is
    unknown.
    """

    def __init__(self, rules: CompiledRules, eos: Sequence[int]) -> None:
        self._lexer, self.matcher = rules.copy(self)
        self._eos = eos

    @property
    def finished(self) -> bool:
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def limit(self, budget: int) -> None:
        pass

    def fill_mask(self, row: Tensor) -> None:
        self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        if self.matcher.is_error():  # `advance` raises it
            allow_all_but(row, self._eos)

    def may_force_after(self, token: int) -> bool:  # noqa: ARG002  it is asked after each mask
        return False

    def forced(self) -> Sequence[int]:
        return self.matcher.compute_ff_tokens()

    def advance(self, token: int) -> None:
        if not self.matcher.consume_token(token):
            self._lexer.broken = True
            raise GrammarError(f"token {token} cannot be taken here: {error_of(self.matcher)}")


def _matcher(lark: str, vocabulary: Vocabulary) -> LLMatcher:
    from llguidance import LLMatcher  # noqa: PLC0415  an engine without grammars does not need it

    try:
        rules = LLMatcher.grammar_from_lark(lark)
    except ValueError as error:
        raise GrammarError(f"not a grammar: {error}") from error
    matcher = LLMatcher(vocabulary.with_slices(()), rules, log_level=0, limits=limits())
    matcher.compute_ff_tokens()
    row = np.empty(vocabulary.tokens.words, np.int32)
    matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)  # fails if it is too complex
    if matcher.is_error():
        raise GrammarError(error_of(matcher))
    return matcher
