"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

Each thread takes whole lexers, since a lexer serves one thread at a time, and works through them without the
interpreter's lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from torch import Tensor

from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.grammar import Grammar
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_MASKS_PER_THREAD, _TOKENS_PER_THREAD = 8, 48  # at least: another thread takes 50 us to begin and end

Place = tuple[JsonGrammar, int]  # a grammar, and its token or its row


class Filling:
    """Masks that threads are filling; the grammars must not advance meanwhile."""

    def __init__(self, mask: Tensor, grammars: Sequence[Place], running: Sequence[Future[None]]) -> None:
        self._mask, self._grammars, self._running = mask, grammars, running

    def wait(self) -> None:
        """Return once all rows are filled."""
        for part in self._running:
            part.result()
        for grammar, row in self._grammars:
            if grammar.matcher.is_error():
                grammar.correct(self._mask[row])


def start_filling(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> Filling:
    """Begin to fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous."""
    ours = _of_schemas(grammars)
    target = (mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))
    parts = _matchers(_parts(ours, _MASKS_PER_THREAD))
    running = [_threads().submit(_fill, _executor(place), part, target) for place, part in enumerate(parts)]
    for other, row in grammars:
        if not isinstance(other, JsonGrammar):
            other.fill_mask(mask[row])
    return Filling(mask, ours, running)


def _fill(executor: LLExecutor, matchers: list[tuple[LLMatcher, int]], target: tuple[int, int, int]) -> None:
    executor.unsafe_compute_mask_ptr(matchers, *target)


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    errors: dict[Grammar, EngineError | None] = {}
    parts = _parts(_of_schemas(grammars), _TOKENS_PER_THREAD)
    for part, results in zip(parts, _consumed(parts), strict=True):
        for (grammar, token), done in zip(part, results, strict=True):
            errors[grammar] = grammar.advanced(token, consumed=done)
    for other, token in grammars:
        if not isinstance(other, JsonGrammar):
            errors[other] = _error(other, token)
    return [errors[grammar] for grammar, _ in grammars]


def _of_schemas(grammars: Sequence[tuple[Grammar, int]]) -> list[Place]:
    return [(grammar, value) for grammar, value in grammars if isinstance(grammar, JsonGrammar)]


def _error(grammar: Grammar, token: int) -> EngineError | None:
    try:
        grammar.advance(token)
    except EngineError as error:
        return error
    return None


def _parts(places: Sequence[Place], least: int) -> list[list[Place]]:
    """A part for each thread, those of one lexer in one part: of about equal size, and of `least` grammars at least."""
    by_lexer: dict[Lexer, list[Place]] = defaultdict(list)
    for place in places:
        by_lexer[place[0].lexer].append(place)
    count = min(THREADS, len(by_lexer), -(-len(places) // least))
    parts: list[list[Place]] = [[] for _ in range(count)]
    for members in sorted(by_lexer.values(), key=len, reverse=True):
        min(parts, key=len).extend(members)
    return parts


def _consumed(parts: Sequence[list[Place]]) -> list[list[bool]]:
    """Have each part's matchers consume their tokens, the first part's on this thread; whether each did."""
    if not parts:
        return []
    first, *others = _matchers(parts)
    running = [_threads().submit(_consume, _executor(place), part) for place, part in enumerate(others, 1)]
    return [_consume(_executor(0), first), *(part.result() for part in running)]


def _consume(executor: LLExecutor, matchers: list[tuple[LLMatcher, int]]) -> list[bool]:
    return executor.consume_token_par(matchers)


def _matchers(parts: Sequence[list[Place]]) -> list[list[tuple[LLMatcher, int]]]:
    return [[(grammar.matcher, value) for grammar, value in part] for part in parts]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="engine-masks")


@cache
def _executor(_part: int) -> LLExecutor:
    """Of one native thread, so that no lexer is contended for."""
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    return LLExecutor(1)
