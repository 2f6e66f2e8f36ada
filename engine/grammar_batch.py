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
from thothy_ai.engine.grammar_fields import StateKey
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
    Masks of texts that may be led to their end are always computed: this renews the work that their lexer may do, which
    the walk to the end uses.
    """

    def __init__(self, mask: Tensor, grammars: Sequence[tuple[JsonGrammar, int]]) -> None:
        self._grammars = grammars
        self._memory, self._choices = grammars[0][0].memory, grammars[0][0].choices
        self._computed: list[tuple[JsonGrammar, int, StateKey | None]] = []
        self._repeated: list[tuple[JsonGrammar, int, int]] = []
        self._closing: list[tuple[JsonGrammar, int]] = []
        self._copied = [_NOWHERE] * len(mask)
        self._divide()
        self._copies = any(self._copied)
        self._own = mask.new_empty((len(self._computed), mask.shape[1])) if self._copies else mask

    def _divide(self) -> None:
        first: dict[StateKey, int] = {}
        places: dict[StateKey, int | None] = {}
        for grammar, row in self._grammars:
            key, closes = grammar.state_key(), grammar.closes
            if closes:
                self._closing.append((grammar, row))
            if key is None or closes or grammar.lexer.needs_mask:
                self._add_computed(grammar, row, key)
                continue
            place = places[key] if key in places else places.setdefault(key, self._memory.place_of(key))
            if place is not None:
                self._copied[row] = place
            elif (like := first.setdefault(key, row)) != row:
                self._repeated.append((grammar, row, like))
            else:
                self._add_computed(grammar, row, key)
        self._computed.sort(key=_lexer)

    def _add_computed(self, grammar: JsonGrammar, row: int, key: StateKey | None) -> None:
        grammar.lexer.count_mask()
        self._computed.append((grammar, row, key))

    def parts(self, mask: Tensor) -> list[Callable[[], None]]:
        """What threads do, each without the interpreter's lock."""
        found: list[Callable[[], None]] = []
        if self._computed:
            places = range(len(self._computed)) if self._copies else [row for _, row, _ in self._computed]
            matchers = [(grammar.matcher, place) for (grammar, *_), place in zip(self._computed, places, strict=True)]
            found.append(partial(_compute, _executor(), matchers, self._own))
        if self._copies:
            found.append(partial(self._memory.copy, self._copied, mask.numpy()))
        return found

    def finish(self, mask: Tensor) -> list[int]:
        """Complete the mask once threads have done their parts; returns the rows that leave no choice."""
        lacking = self._finish_computed(mask)
        if self._copies:
            lacking.update(self._memory.lacking(self._copied).tolist())
        if self._closing:
            lacking = self._close(mask, lacking)
        return sorted(lacking)

    def _finish_computed(self, mask: Tensor) -> set[int]:
        """Put the computed masks and their copies where they belong; returns the rows that leave no choice."""
        rows, bits = [row for _, row, _ in self._computed], mask.numpy()
        if self._copies:
            bits[rows] = self._own.numpy()
        broken = {row for grammar, row, _ in self._computed if grammar.matcher.is_error()}
        for grammar, row, _ in self._computed:
            if row in broken:
                grammar.correct(mask[row])
        for grammar, row, like in self._repeated:
            if like in broken:
                grammar.compute(mask[row])
            else:
                bits[row] = bits[like]
        lacking = {*self._choices.lacking(bits, [*rows, *(row for _, row, _ in self._repeated)])}
        for _, row, key in self._computed:
            if key is not None and row not in broken:
                self._memory.keep(key, bits[row], lacking=row in lacking)
        return lacking

    def _close(self, mask: Tensor, lacking: set[int]) -> set[int]:
        """Have closing texts restrict their masks; returns all rows that leave no choice then."""
        rows = [row for _, row in self._closing]
        for grammar, row in self._closing:
            grammar.close(mask[row])
        return lacking.difference(rows).union(self._choices.lacking(mask.numpy(), rows))


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


def _lexer(member: tuple[JsonGrammar, int, StateKey | None]) -> int:
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
