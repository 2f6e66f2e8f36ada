"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

Each thread takes whole lexers, since a lexer serves one thread at a time, and works through them without the
interpreter's lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.grammar import Grammar
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_MASKS_PER_THREAD, _TOKENS_PER_THREAD = 8, 48  # at least: another thread takes 50 us to begin and end

Place = tuple[JsonGrammar, int]  # a grammar, and its token or its row

T = TypeVar("T")


def fill_masks(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> None:
    """Fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous."""
    ours = _of_schemas(grammars)
    target = (mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))
    parts = _parts(ours, _MASKS_PER_THREAD)
    _in_parallel(parts, lambda executor, matchers: executor.unsafe_compute_mask_ptr(matchers, *target))
    for grammar, row in ours:
        if grammar.matcher.is_error():
            grammar.correct(mask[row])
    for other, row in grammars:
        if not isinstance(other, JsonGrammar):
            other.fill_mask(mask[row])


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    errors: dict[Grammar, EngineError | None] = {}
    parts = _parts(_of_schemas(grammars), _TOKENS_PER_THREAD)
    consumed = _in_parallel(parts, lambda executor, matchers: executor.consume_token_par(matchers))
    for part, results in zip(parts, consumed, strict=True):
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


def _in_parallel(parts: Sequence[list[Place]], work: Callable[[LLExecutor, list[tuple[LLMatcher, int]]], T]) -> list[T]:
    """Do the work on each part's matchers, the first part's on this thread; returns the results in order."""
    if not parts:
        return []
    matchers = [[(grammar.matcher, value) for grammar, value in part] for part in parts]
    running = [_threads().submit(work, _executor(place), each) for place, each in enumerate(matchers[1:], 1)]
    return [work(_executor(0), matchers[0]), *(each.result() for each in running)]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="engine-masks")


@cache
def _executor(_part: int) -> LLExecutor:
    """Of one native thread, so that no lexer is contended for."""
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    return LLExecutor(1)
