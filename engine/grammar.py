"""JSON schemas as token masks, by llguidance: which tokens may come next, and which must.

The separators are fixed (no optional white space), so that most of the punctuation and all keys are forced and need no
sampling. llguidance is imported when the first grammar is made; an engine without grammars does not need it.

Several threads fill a step's masks, one thread those of each schema: grammars of one schema share a lexer and its lock.
(One lexer per thread was tried: building its states anew in each costs as much as the threads gain.)
"""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from functools import cache, cached_property
from itertools import count
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from thothy_ai.engine.errors import GrammarError

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions  # named nowhere else
    from transformers import PreTrainedTokenizerFast

_COMPACT: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
# Plain prose, as slices of the vocabulary: where a pattern allows whole runs of it, a mask takes their tokens at once
# and costs 50 us instead of 500. A pattern gains if it has [...]{20,200} itself; with `maxLength` nothing is gained.
_PROSE = "[A-Za-z0-9 ,;:'()%-]"
_PROSE_SLICES = [f"{_PROSE}{{1,10}}", f"{_PROSE}{{1,30}}"]
_MAX_SCHEMAS = 64  # kept for reuse
_MAX_COPIES = 500  # of one prototype
_THREADS = min(8, len(os.sched_getaffinity(0)))
_ALL = -1  # every bit of an int32


class Grammar(Protocol):
    """One request's state in its grammar. The core owns it once the request is submitted."""

    @property
    def finished(self) -> bool:
        """Whether no token except the end of text is possible."""

    def fill_mask(self, row: Tensor) -> None:
        """Write the allowed tokens into `row` [ceil(vocab / 32)] int32 on the host, lowest bit first."""

    def forced(self) -> list[int]:
        """The tokens that must come next, if any; the caller advances over them."""

    def advance(self, token: int) -> None:
        """Consume the next token; GrammarError if it is not allowed, or if the grammar grew too complex."""


def fill_masks(mask: Tensor, grammars: Iterable[tuple[int, Grammar]]) -> None:
    """Fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, different schemas in parallel."""
    by_lexer: dict[int, list[tuple[int, JsonGrammar]]] = defaultdict(list)
    for row, grammar in grammars:
        if isinstance(grammar, JsonGrammar):
            by_lexer[grammar.lexer].append((row, grammar))
        else:
            grammar.fill_mask(mask[row])
    alike = [member for members in by_lexer.values() for member in members]
    if len(by_lexer) > 1:
        _fill_together(mask, alike)
    else:
        for row, grammar in alike:
            grammar.fill_mask(mask[row])


class GrammarCompiler:
    """Makes grammars for one tokenizer. `eos` are the ids that end a text; `vocab_size` is that of the logits.

    Copies of a matcher share its lexer's states, so that a schema that is used again fills its masks five times as
    fast. Used by one thread; the grammars may be used by another.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, vocab_size: int, eos: Collection[int]) -> None:
        self._tokenizer, self._vocab_size, self._eos = tokenizer, vocab_size, sorted(eos)
        self._prototypes: OrderedDict[str, _Prototype] = OrderedDict()  # least recently used first
        self._lexers = count()

    def compile(self, schema: str) -> Grammar:
        """A grammar of all compact JSON texts that match the schema (JSON text); GrammarError if there is none."""
        prototype = self._prototypes.pop(schema, None)
        if prototype is None or not prototype.copies_left:
            prototype = _Prototype(self._matcher(schema), next(self._lexers))
        self._prototypes[schema] = prototype
        if len(self._prototypes) > _MAX_SCHEMAS:
            self._prototypes.popitem(last=False)
        return JsonGrammar(prototype.copy(), self._eos, prototype.lexer)

    def _matcher(self, schema: str) -> LLMatcher:
        from llguidance import LLMatcher  # noqa: PLC0415  an engine without grammars does not need it

        tokenizer = self._vocabulary
        try:
            rules = LLMatcher.grammar_from_json_schema(schema, overrides=_COMPACT)
        except ValueError as error:
            raise GrammarError(f"not a JSON schema: {error}") from error
        matcher = LLMatcher(tokenizer, rules, log_level=0)
        matcher.compute_ff_tokens()  # builds the first lexer states now, not in a step
        if matcher.is_error():
            raise GrammarError(_first_line(matcher))
        return matcher

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        import llguidance.hf  # noqa: PLC0415  as above

        tokenizer = llguidance.hf.from_tokenizer(self._tokenizer, n_vocab=self._vocab_size, eos_token=self._eos)
        return tokenizer.with_slices([*tokenizer.json_slices(), *_PROSE_SLICES])


class _Prototype:
    """A matcher that is only copied. Its shared lexer grows with its copies' input, so that it is replaced in time."""

    def __init__(self, matcher: LLMatcher, lexer: int) -> None:
        self._matcher = matcher
        self.lexer = lexer
        self.copies_left = _MAX_COPIES

    def copy(self) -> LLMatcher:
        self.copies_left -= 1
        return self._matcher.deep_copy()


class JsonGrammar:
    """Implements `Grammar` over an llguidance matcher, whose errors persist: the next `advance` raises them.

    Grammars with the same `lexer` cannot fill masks at the same time.
    """

    def __init__(self, matcher: LLMatcher, eos: list[int], lexer: int) -> None:
        self.matcher, self.lexer, self._eos = matcher, lexer, eos

    @property
    def finished(self) -> bool:
        """The JSON value is complete."""
        return self.matcher.is_stopped() and not self.matcher.is_error()

    def fill_mask(self, row: Tensor) -> None:
        """Fill one row."""
        self.matcher.unsafe_compute_mask_ptr(row.data_ptr(), row.nbytes)
        self.correct(row)

    def correct(self, row: Tensor) -> None:
        """After an error, allow everything except the end of text: the request must not look finished."""
        if self.matcher.is_error():
            row.fill_(_ALL)
            for token in self._eos:
                row[token // 32] &= _without(token % 32)

    def forced(self) -> list[int]:
        """llguidance's fast-forward tokens."""
        return self.matcher.compute_ff_tokens()

    def advance(self, token: int) -> None:
        """Consume one token."""
        if not self.matcher.consume_token(token):
            raise GrammarError(f"token {token} is not allowed here: {_first_line(self.matcher)}")


@cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor  # noqa: PLC0415  as above

    return LLExecutor(_THREADS)


def _fill_together(mask: Tensor, grammars: list[tuple[int, JsonGrammar]]) -> None:
    """Each thread takes adjacent grammars: those that share a lexer are adjacent."""
    wanted = [(grammar.matcher, row) for row, grammar in grammars]
    _executor().unsafe_compute_mask_ptr(wanted, mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))
    for row, grammar in grammars:
        grammar.correct(mask[row])


def _without(bit: int) -> int:
    """An int32 with this bit alone cleared."""
    return int(torch.tensor(~(1 << bit), dtype=torch.int64).to(torch.int32))


def _first_line(matcher: LLMatcher) -> str:
    """The error without the parser's state that follows it."""
    return " ".join(matcher.get_error().partition("<state>")[0].split())
