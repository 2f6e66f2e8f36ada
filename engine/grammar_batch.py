"""What a step does with all its grammars at once: advance them by a token each, and fill their masks.

llguidance's threads work through them without the interpreter's lock, each through a run of neighbours. A lexer serves
one thread at a time: its grammars are put side by side, so that threads seldom wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING

from torch import Tensor

from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.grammar import Grammar
from thothy_ai.engine.grammar_fields import MaskKey
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_NOWHERE = 0  # place of a mask that nothing needs


class Filling:
    """Masks that other threads are filling; until they are there, none of the grammars may advance."""

    def __init__(
        self, mask: Tensor, work: _Work | None, others: Sequence[tuple[Grammar, int]], running: Sequence[Future[None]]
    ) -> None:
        self._mask, self._work, self._others, self._running = mask, work, others, running

    def wait(self) -> list[int]:
        """Return once all rows are filled: those for whose grammars something may be forced."""
        for part in self._running:
            part.result()
        lacking = [] if self._work is None else self._work.finish(self._mask)
        for other, row in self._others:
            other.fill_mask(self._mask[row])
        return [*(row for _, row in self._others), *lacking]


class _Work:
    """What a step's masks take: those that are remembered are copied, those that several grammars share computed once.

    `copied` is for each row where its mask is in the memory; `repeated` are rows with the one whose mask they share.
    """

    def __init__(self, mask: Tensor, grammars: Sequence[tuple[JsonGrammar, int]]) -> None:
        self._grammars, self._memory = grammars, grammars[0][0].memory
        self._computed: list[tuple[JsonGrammar, int, MaskKey | None]] = []
        self._repeated: list[tuple[JsonGrammar, int, int]] = []
        self._copied = [_NOWHERE] * len(mask)
        self._divide()
        self._copies = any(self._copied)
        self._own = mask.new_empty((len(self._computed), mask.shape[1])) if self._copies else mask

    def _divide(self) -> None:
        first: dict[MaskKey, int] = {}
        for grammar, row in self._grammars:
            key = grammar.mask_key()
            place = None if key is None else self._memory.place_of(key)
            if place is not None:
                self._copied[row] = place
            elif key is not None and (like := first.setdefault(key, row)) != row:
                self._repeated.append((grammar, row, like))
            else:
                self._computed.append((grammar, row, key))
        self._computed.sort(key=_lexer)

    def parts(self, mask: Tensor) -> list[Callable[[], None]]:
        """What threads do, each without the interpreter's lock."""
        found: list[Callable[[], None]] = []
        if self._computed:
            places = range(len(self._computed)) if self._copies else [row for _, row, _ in self._computed]
            matchers = [(grammar.matcher, place) for (grammar, *_), place in zip(self._computed, places, strict=True)]
            found.append(partial(_compute, _executor(), matchers, self._own))
        if self._copies:
            found.append(partial(self._memory.copy, self._copied, mask))
        return found

    def finish(self, mask: Tensor) -> list[int]:
        """Complete the mask once threads have done their parts; returns the rows that leave no choice."""
        broken = {row for place, (_, row, _) in enumerate(self._computed) if not self._take(mask, place)}
        for grammar, row, like in self._repeated:
            if like in broken:
                grammar.compute(mask[row])
            else:
                mask[row] = mask[like]
        for grammar, row in self._grammars:
            if grammar.closes:
                grammar.close(mask[row])
        lacking = set(self._grammars[0][0].choices.lacking(mask.numpy()).tolist())
        return [row for _, row in self._grammars if row in lacking]

    def _take(self, mask: Tensor, place: int) -> bool:
        """Put a computed mask where it belongs, and remember it; False if its lexer broke."""
        grammar, row, key = self._computed[place]
        if self._copies:
            mask[row] = self._own[place]
        if grammar.matcher.is_error():
            grammar.correct(mask[row])
            return False
        if key is not None:
            self._memory.keep(key, mask[row])
        return True


def start_filling(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> Filling:
    """Begin to fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous; the others are undefined
    until `Filling.wait` has returned.

    Returns once the other threads are at work: they need the interpreter's lock until then, which the caller's further
    work would keep from them for milliseconds.
    """
    ours = [(grammar, row) for grammar, row in grammars if isinstance(grammar, JsonGrammar)]
    others = [] if len(ours) == len(grammars) else [each for each in grammars if not isinstance(each[0], JsonGrammar)]
    if not ours:
        return Filling(mask, None, others, ())
    work, begun = _Work(mask, ours), threading.Semaphore(0)
    running = [_threads().submit(_run, part, begun) for part in work.parts(mask)]
    for _ in running:
        begun.acquire()
    return Filling(mask, work, others, running)


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    matchers = [(grammar.matcher, token) for grammar, token in grammars if isinstance(grammar, JsonGrammar)]
    consumed = iter(_executor().consume_token_par(matchers) if matchers else ())
    return [
        grammar.advanced(token, consumed=next(consumed)) if isinstance(grammar, JsonGrammar) else _error(grammar, token)
        for grammar, token in grammars
    ]


def _run(part: Callable[[], None], begun: threading.Semaphore) -> None:
    begun.release()
    part()


def _compute(executor: LLExecutor, matchers: list[tuple[LLMatcher, int]], rows: Tensor) -> None:
    executor.unsafe_compute_mask_ptr(matchers, rows.data_ptr(), rows.stride(0) * rows.itemsize, len(rows))


def _lexer(member: tuple[JsonGrammar, int, MaskKey | None]) -> int:
    return id(member[0].lexer)


def _error(grammar: Grammar, token: int) -> EngineError | None:
    try:
        grammar.advance(token)
    except EngineError as error:
        return error
    return None


@cache
def _threads() -> ThreadPoolExecutor:
    """One hands a step's masks to llguidance's threads and waits for them; the other copies those that are known."""
    return ThreadPoolExecutor(2, thread_name_prefix="engine-masks")


@cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    return LLExecutor(THREADS)
