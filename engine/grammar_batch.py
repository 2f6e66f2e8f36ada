"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

Each thread takes whole lexers, since a lexer serves one thread at a time, and works through them without the
interpreter's lock.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from torch import Tensor

from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.grammar import Grammar
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor

_MASKS_PER_THREAD, _TOKENS_PER_THREAD = 8, 48  # at least: another thread takes 50 us to begin and end

Place = tuple[JsonGrammar, int]  # a grammar, and its token or its row

_native = threading.local()


def fill_masks(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> None:
    """Fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous."""

    def fill(part: list[Place]) -> None:
        wanted = [(grammar.matcher, row) for grammar, row in part]
        _executor().unsafe_compute_mask_ptr(wanted, mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))
        for grammar, row in part:
            if grammar.matcher.is_error():
                grammar.correct(mask[row])

    _in_parallel(_of_schemas(grammars), fill, _MASKS_PER_THREAD)
    for grammar, row in grammars:
        if not isinstance(grammar, JsonGrammar):
            grammar.fill_mask(mask[row])


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    errors: dict[Grammar, EngineError | None] = {}

    def advance(part: list[Place]) -> None:
        consumed = _executor().consume_token_par([(grammar.matcher, token) for grammar, token in part])
        for (grammar, token), done in zip(part, consumed, strict=True):
            errors[grammar] = grammar.advanced(token, consumed=done)

    _in_parallel(_of_schemas(grammars), advance, _TOKENS_PER_THREAD)
    for grammar, token in grammars:
        if not isinstance(grammar, JsonGrammar):
            errors[grammar] = _error(grammar, token)
    return [errors[grammar] for grammar, _ in grammars]


def _of_schemas(grammars: Sequence[tuple[Grammar, int]]) -> list[Place]:
    return [(grammar, value) for grammar, value in grammars if isinstance(grammar, JsonGrammar)]


def _error(grammar: Grammar, token: int) -> EngineError | None:
    try:
        grammar.advance(token)
    except EngineError as error:
        return error
    return None


def _in_parallel(places: Sequence[Place], work: Callable[[list[Place]], None], per_thread: int) -> None:
    """Do the work on all grammars, those of one lexer on one thread; this thread takes a part of it."""
    if not places:
        return
    first, *others = _parts(places, min(THREADS, -(-len(places) // per_thread)))
    running = [_threads().submit(work, part) for part in others]
    work(first)
    for each in running:
        each.result()


def _parts(places: Sequence[Place], most: int) -> list[list[Place]]:
    """At most so many parts, of about equal size: the lexers with the most grammars are dealt first."""
    by_lexer: dict[Lexer, list[Place]] = defaultdict(list)
    for place in places:
        by_lexer[place[0].lexer].append(place)
    parts: list[list[Place]] = [[] for _ in range(min(most, len(by_lexer)))]
    for members in sorted(by_lexer.values(), key=len, reverse=True):
        min(parts, key=len).extend(members)
    return parts


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="engine-masks")


def _executor() -> LLExecutor:
    """This thread's own, of one native thread, so that no lexer is contended for."""
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    if not hasattr(_native, "executor"):
        _native.executor = LLExecutor(1)
    executor: LLExecutor = _native.executor
    return executor
