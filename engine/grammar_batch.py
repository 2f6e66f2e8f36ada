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
from thothy_ai.engine.grammar_fields import MaskKey
from thothy_ai.engine.grammar_lexers import THREADS, JsonGrammar

if TYPE_CHECKING:
    from llguidance import LLExecutor


class Filling:
    """Masks that other threads are filling; until they are there, none of the grammars may advance."""

    def __init__(
        self, mask: Tensor, work: _Work | None, others: Sequence[tuple[Grammar, int]], filled: Future[None] | None
    ) -> None:
        self._mask, self._work, self._others, self._filled = mask, work, others, filled

    def wait(self) -> list[int]:
        """Return once all rows are filled: those for whose grammars something may be forced."""
        lacking = [] if self._work is None or self._filled is None else self._finished(self._work, self._filled)
        for other, row in self._others:
            other.fill_mask(self._mask[row])
        return [*(row for _, row in self._others), *lacking]

    def _finished(self, work: _Work, filled: Future[None]) -> list[int]:
        filled.result()
        for member in work.computed:
            self._check(*member)
        for row, like in work.repeated:
            self._mask[row] = self._mask[like]
        for grammar, row in work.grammars:
            if grammar.closes:
                grammar.close(self._mask[row])
        lacking = set(work.grammars[0][0].choices.lacking(self._mask.numpy()).tolist())
        return [row for _, row in work.grammars if row in lacking]

    def _check(self, grammar: JsonGrammar, row: int, key: MaskKey | None) -> None:
        """Remember a mask, unless its lexer broke."""
        if grammar.matcher.is_error():
            grammar.correct(self._mask[row])
        elif key is not None:
            grammar.memory.keep(key, self._mask[row])


class _Work:
    """What a step's masks take: those that are remembered are copied, those that several grammars share computed once.

    `known` is for each row where its mask is in the memory, if it is there; `repeated` are rows with those that they
    equal.
    """

    def __init__(self, rows: int, grammars: list[tuple[JsonGrammar, int]]) -> None:
        self.grammars = grammars
        self.computed: list[tuple[JsonGrammar, int, MaskKey | None]] = []
        self.repeated: list[tuple[int, int]] = []
        self._known, self._copies = [0] * rows, 0
        self._divide()

    def _divide(self) -> None:
        first: dict[MaskKey, int] = {}
        memory = self.grammars[0][0].memory
        for grammar, row in self.grammars:
            key = grammar.mask_key()
            place = None if key is None else memory.place_of(key)
            if place is not None:
                self._known[row] = place
                self._copies += 1
            elif key is not None and (like := first.setdefault(key, row)) != row:
                self.repeated.append((row, like))
            else:
                self.computed.append((grammar, row, key))
        self.computed.sort(key=_lexer)

    def run(self, mask: Tensor, begun: threading.Event) -> None:
        """Fill the mask, but for what `Filling.wait` adds; `begun` is set once little is left that needs the lock."""
        matchers = [(grammar.matcher, row) for grammar, row, _ in self.computed]
        begun.set()
        if self._copies:
            self.grammars[0][0].memory.copy(self._known, mask)  # to all rows: the others are written after it
        if matchers:
            _executor().unsafe_compute_mask_ptr(matchers, mask.data_ptr(), mask.stride(0) * mask.itemsize, len(mask))


def start_filling(mask: Tensor, grammars: Sequence[tuple[Grammar, int]]) -> Filling:
    """Begin to fill these rows of `mask` [R, ceil(vocab / 32)] int32 on the host, contiguous; the others are undefined
    until `Filling.wait` has returned.

    Returns once the other thread has begun: it needs the interpreter's lock for that, which the caller's further work
    would keep from it for milliseconds.
    """
    ours = [(grammar, row) for grammar, row in grammars if isinstance(grammar, JsonGrammar)]
    others = [] if len(ours) == len(grammars) else [each for each in grammars if not isinstance(each[0], JsonGrammar)]
    if not ours:
        return Filling(mask, None, others, None)
    work, begun = _Work(len(mask), ours), threading.Event()
    filled = _thread().submit(work.run, mask, begun)
    begun.wait()
    return Filling(mask, work, others, filled)


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns why one cannot go on, if it cannot."""
    matchers = [(grammar.matcher, token) for grammar, token in grammars if isinstance(grammar, JsonGrammar)]
    consumed = iter(_executor().consume_token_par(matchers) if matchers else ())
    return [
        grammar.advanced(token, consumed=next(consumed)) if isinstance(grammar, JsonGrammar) else _error(grammar, token)
        for grammar, token in grammars
    ]


def _lexer(member: tuple[JsonGrammar, int, MaskKey | None]) -> int:
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
