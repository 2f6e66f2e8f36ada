"""Compiles JSON schemas to grammars with llguidance, which yield masks of allowed tokens, and forced tokens.

Separators are fixed (no optional white space), so that most punctuation and all keys are forced and need no sampling.
llguidance is imported on the thread that builds the vocabulary, so that an engine without it can still serve requests
without a schema.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from thothy_ai.engine.api.core import AnswerRules
from thothy_ai.engine.api.errors import GrammarError, ModelLoadError
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.lexers import THREADS, Lexers
from thothy_ai.engine.grammar.ruled import CompiledRules, RuledGrammar
from thothy_ai.engine.grammar.segments import CompiledSegments, SegmentedGrammar
from thothy_ai.engine.grammar.tokens import CoreTokenizer
from thothy_ai.engine.grammar.vocabulary import Vocabulary

MAX_SCHEMA_BYTES = 256 * 1024  # compile in at most half a second
_MAX_SCHEMAS = 1_024  # kept for reuse: those of the jobs in flight; 150 kB each, more as their lexers grow

K = TypeVar("K")
V = TypeVar("V")


class Grammar(Protocol):
    """One request's state in its grammar. The core owns it once the request is submitted."""

    @property
    def finished(self) -> bool:
        """Whether no token except the end of text is possible."""

    def limit(self, budget: int) -> None:
        """Make the text end within `budget` tokens; BudgetTooSmallError if its schema's shortest text is longer."""

    def fill_mask(self, row: Tensor) -> None:
        """Write the allowed tokens into `row` [ceil(vocab / 32)] int32 on the host, lowest bit first."""

    def may_force_after(self, token: int) -> bool:
        """Whether to call `forced` right after this token; otherwise, only when a mask leaves no choice."""

    def forced(self) -> Sequence[int]:
        """The tokens that must come next, if any; the caller advances by them."""

    def advance(self, token: int) -> None:
        """Consume the next token; GrammarError if it is not allowed, or if the grammar grew too complex."""


class GrammarCompiler:
    """Makes grammars for one tokenizer. `eos` are the ids that end a text; `vocab_size` is the width of the logits; a
    schema has up to `lexers` lexers. ModelLoadError without any `eos`.

    The vocabulary is built in the background; the first `compile` waits for it. Can be used by any thread.
    """

    def __init__(
        self, tokenizer: CoreTokenizer, vocab_size: int, eos: Collection[int], *, lexers: int = THREADS
    ) -> None:
        if not eos:
            raise ModelLoadError("neither the model's configuration nor its tokenizer names an end-of-text token")
        self._eos, self._lexers = sorted(eos), lexers
        self._vocabulary = Vocabulary(tokenizer, vocab_size, self._eos)
        self._schemas: _Compiled[str, Lexers] = _Compiled()
        self._rules: _Compiled[AnswerRules, CompiledRules] = _Compiled()
        self._segments: _Compiled[AnswerRules, CompiledSegments] = _Compiled()

    def compile(self, source: str | AnswerRules) -> Grammar:
        """A grammar of all compact JSON texts that match the schema (JSON text), or of all texts that match the rules.

        GrammarError if there is none.
        """
        if isinstance(source, str):
            return JsonGrammar(self._lexers_of(source), self._eos)
        if (segments := source.segments) is not None:
            pieces = self._segments.get(
                source, lambda: CompiledSegments(source, segments, self._vocabulary, self._lexers_of)
            )
            return SegmentedGrammar(pieces, self._eos)
        return RuledGrammar(self._rules.get(source, lambda: CompiledRules(source, self._vocabulary)), self._eos)

    def _lexers_of(self, schema: str) -> Lexers:
        size = len(schema.encode("utf-8", "surrogatepass"))
        if size > MAX_SCHEMA_BYTES:
            raise GrammarError(f"the schema has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,} are accepted")
        return self._schemas.get(schema, lambda: Lexers(schema, self._vocabulary, most=self._lexers))


class _Compiled(Generic[K, V]):
    """A cache of recent results by source; each is compiled once, however many threads ask for it simultaneously."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, Future[V]] = OrderedDict()  # least recently used first

    def get(self, source: K, compile_: Callable[[], V]) -> V:
        with self._lock:
            known = self._kept.pop(source, None)
            compiled = self._kept[source] = Future() if known is None else known
            if len(self._kept) > _MAX_SCHEMAS:
                self._kept.popitem(last=False)
        if known is None:
            try:
                compiled.set_result(compile_())
            except BaseException as error:  # noqa: BLE001  a panic in Rust is no Exception; `result` raises it
                compiled.set_exception(error)
                with self._lock:
                    self._kept.pop(source, None)
        return compiled.result()
