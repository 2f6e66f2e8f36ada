"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

Each thread takes whole lexers, since a lexer serves one thread at a time, and works through them without the
interpreter's lock.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from thothy_ai.engine.errors import GrammarError
from thothy_ai.engine.grammar_lexers import JsonGrammar, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor

THREADS = min(16, len(os.sched_getaffinity(0)))
_FEW = 8  # grammars: not worth another thread

_native = threading.local()

Member = TypeVar("Member", bound=tuple[JsonGrammar, int])


def fill_masks(mask: Tensor, grammars: Sequence[tuple[JsonGrammar, int]]) -> None:
    """Fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host."""

    def fill(part: list[tuple[JsonGrammar, int]]) -> None:
        wanted = [(grammar.matcher, row) for grammar, row in part]
        _executor().unsafe_compute_mask_ptr(wanted, mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))
        for grammar, row in part:
            if grammar.matcher.is_error():
                grammar.correct(mask[row])

    _in_parallel(grammars, fill)


def advance_all(grammars: Sequence[tuple[JsonGrammar, int]]) -> list[GrammarError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    errors: dict[JsonGrammar, GrammarError | None] = {}

    def advance(part: list[tuple[JsonGrammar, int]]) -> None:
        consumed = _executor().consume_token_par([(grammar.matcher, token) for grammar, token in part])
        for (grammar, token), done in zip(part, consumed, strict=True):
            errors[grammar] = grammar.advanced(token, consumed=done)

    _in_parallel(grammars, advance)
    return [errors[grammar] for grammar, _ in grammars]


def _in_parallel(
    grammars: Sequence[tuple[JsonGrammar, int]], work: Callable[[list[tuple[JsonGrammar, int]]], None]
) -> None:
    """Do the work on all grammars, those of one lexer on one thread; this thread takes a part of it."""
    first, *others = _parts(grammars, THREADS if len(grammars) > _FEW else 1)
    running = [_threads().submit(work, part) for part in others]
    if first:
        work(first)
    for each in running:
        each.result()


def _parts(grammars: Iterable[tuple[JsonGrammar, int]], count: int) -> list[list[tuple[JsonGrammar, int]]]:
    """At most `count` parts of about equal size, the first of which may be empty: the largest lexers are dealt first."""
    by_lexer: dict[Lexer, list[tuple[JsonGrammar, int]]] = defaultdict(list)
    for grammar, value in grammars:
        by_lexer[grammar.lexer].append((grammar, value))
    parts: list[list[tuple[JsonGrammar, int]]] = [[] for _ in range(max(1, min(count, len(by_lexer))))]
    for members in sorted(by_lexer.values(), key=len, reverse=True):
        min(parts, key=len).extend(members)
    return parts


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="engine-masks")


def _executor() -> LLExecutor:
    """This thread's: one native thread, so that no lexer is contended for."""
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    if not hasattr(_native, "executor"):
        _native.executor = LLExecutor(1)
    executor: LLExecutor = _native.executor
    return executor
