"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

llguidance's threads work through them without the interpreter's lock, each through a run of neighbours. A lexer serves
one thread at a time: its grammars are put side by side, so that threads seldom wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from torch import Tensor

from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.grammar import Grammar
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher


class Filling:
    """Masks that other threads are filling; until they are there, none of the grammars may advance."""

    def __init__(
        self,
        mask: Tensor,
        grammars: Sequence[tuple[JsonGrammar, int]],
        others: Sequence[int],
        filled: Future[None] | None,
    ) -> None:
        self._mask, self._grammars, self._others, self._filled = mask, grammars, others, filled

    def wait(self) -> list[int]:
        """Return once all rows are filled: those for whose grammars something may be forced."""
        if self._filled is None:
            return [*self._others]
        self._filled.result()
        for grammar, row in self._grammars:
            if grammar.matcher.is_error():
                grammar.correct(self._mask[row])
            if grammar.closes:
                grammar.close(self._mask[row])
        lacking = set(self._grammars[0][0].choices.lacking(self._mask.numpy()).tolist())
        return [*self._others, *(row for _, row in self._grammars if row in lacking)]


def start_filling(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> Filling:
    """Begin to fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous.

    Returns once the other thread is in llguidance: it needs the interpreter's lock until then, which the caller's
    further work would keep from it for milliseconds.
    """
    ours = [(grammar, row) for grammar, row in grammars if isinstance(grammar, JsonGrammar)]
    ours.sort(key=_lexer)
    filled = None
    if ours:
        begun, matchers = threading.Event(), [(grammar.matcher, row) for grammar, row in ours]
        filled = _thread().submit(_fill, _executor(), mask, matchers, begun)
        begun.wait()
    others = [] if len(ours) == len(grammars) else [each for each in grammars if not isinstance(each[0], JsonGrammar)]
    for other, row in others:
        other.fill_mask(mask[row])
    return Filling(mask, ours, [row for _, row in others], filled)


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    matchers = [(grammar.matcher, token) for grammar, token in grammars if isinstance(grammar, JsonGrammar)]
    consumed = iter(_executor().consume_token_par(matchers) if matchers else ())
    return [
        grammar.advanced(token, consumed=next(consumed)) if isinstance(grammar, JsonGrammar) else _error(grammar, token)
        for grammar, token in grammars
    ]


def _fill(executor: LLExecutor, mask: Tensor, matchers: list[tuple[LLMatcher, int]], begun: threading.Event) -> None:
    begun.set()
    executor.unsafe_compute_mask_ptr(matchers, mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))


def _lexer(member: tuple[JsonGrammar, int]) -> int:
    return id(member[0].lexer)


def _error(grammar: Grammar, token: int) -> EngineError | None:
    try:
        grammar.advance(token)
    except EngineError as error:
        return error
    return None


@cache
def _thread() -> ThreadPoolExecutor:
    """One thread, which hands a step's masks to llguidance's and waits for them."""
    return ThreadPoolExecutor(1, thread_name_prefix="engine-masks")


@cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    return LLExecutor(THREADS)
