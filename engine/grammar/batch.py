"""A step's work on all its grammars: advances each by a token, and fills their masks.

llguidance's threads work through the grammars without the interpreter's lock; each takes a run of neighbours. Since a
lexer serves one thread at a time, its grammars are neighbours, so that threads seldom wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.grammar.compiler import Grammar
from thothy_ai.engine.grammar.fields import StateKey
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.lexers import THREADS
from thothy_ai.engine.grammar.memory import RowMasks

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

# These threads hand a step's masks to llguidance's threads and wait; each of up to four engines has one step at a time.
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="engine-masks")


class Filling:
    """Masks that other threads are filling; none of the grammars may advance before `wait` has returned."""

    def __init__(
        self,
        masks: RowMasks,
        work: _Work | None,
        others: Sequence[tuple[Grammar, int]],
        running: Future[None] | None,
    ) -> None:
        self._masks, self._work, self._others, self._running = masks, work, others, running

    def wait(self) -> list[int]:
        """Wait until all rows have their masks; returns the rows whose grammars may force tokens."""
        if self._running is not None:
            self._running.result()
        lacking = [] if self._work is None else self._work.finish()
        for other, row in self._others:
            fill(self._masks, row, other)
        return [*(row for _, row in self._others), *lacking]


class _Work:
    """The masks of a step: remembered masks have a place, and masks that several grammars share are computed once.

    `found` has the masks that are not remembered, in the order of `bits`; `computed` the grammars whose masks must be
    computed, with their index in `found`; `repeated` the rows that share a mask, with the row that has it. Masks that
    closing a text may restrict are always computed, since remembered masks are only on the device, and not remembered,
    since closing changes them in place.
    """

    def __init__(self, masks: RowMasks, grammars: Sequence[tuple[JsonGrammar, int]]) -> None:
        self._masks, self._memory, self._choices = masks, masks.memory, grammars[0][0].choices
        self._found: list[tuple[JsonGrammar, int, StateKey | None]] = []
        self._repeated: list[tuple[JsonGrammar, int, int]] = []
        self._own: set[int] = set()  # rows whose masks must be computed
        self._closing: set[int] = set()
        self._divide(grammars)
        self._lacking = self._memory.begin(masks.places)
        self._numbers = masks.add(len(self._found))
        self._bits = masks.bits[self._numbers.start : self._numbers.stop]
        self._computed: list[tuple[JsonGrammar, int]] = []
        for index, ((grammar, row, key), mask) in enumerate(zip(self._found, self._bits, strict=True)):
            if key is None or row in self._own or not self._memory.derive(key, grammar.tokens, mask):
                self._computed.append((grammar, index))

    def _divide(self, grammars: Sequence[tuple[JsonGrammar, int]]) -> None:
        place_of, places, first = self._memory.place_of, self._masks.places, dict[StateKey, int]()
        for grammar, row in grammars:
            key = grammar.shared_key()
            if key is not None:
                if (place := place_of(key)) is not None:
                    places[row] = place
                    continue
                if (like := first.setdefault(key, row)) != row:
                    self._repeated.append((grammar, row, like))
                    continue
            else:
                key = grammar.state_key()  # which reads the text, as later keys of this grammar require
                self._own.add(row)
                grammar.lexer.count_mask()  # at once, so that the lexer's other grammars need not compute theirs
                if grammar.closes:
                    self._closing.add(row)
            self._found.append((grammar, row, key))
        self._found.sort(key=lambda found: id(found[0].lexer))

    def start(self) -> Future[None] | None:
        """Begin to compute masks on another thread, if any must be computed.

        Returns once that thread is at work. Until then it needs the interpreter's lock, which the caller would
        otherwise hold for milliseconds.
        """
        if not self._computed:
            return None
        for grammar, _ in self._computed:
            grammar.lexer.count_mask()
        catch_up(grammar for grammar, _ in self._computed)
        matchers = [(grammar.matcher, index) for grammar, index in self._computed]
        executor, begun = _executor(), threading.Semaphore(0)

        def run() -> None:
            begun.release()
            _compute(executor, matchers, self._bits)

        running = _THREADS.submit(run)
        begun.acquire()
        return running

    def finish(self) -> list[int]:
        """Wait for the other thread and give each row its mask; returns the rows whose masks leave no choice."""
        if not self._found:
            return self._lacking
        broken = [(grammar, index) for grammar, index in self._computed if grammar.matcher.is_error()]
        for grammar, index in broken:
            grammar.correct(torch.from_numpy(self._bits[index]))
        unsure = {self._found[index][1] for _, index in broken}
        alone = unsure | self._closing  # rows whose masks are valid for their texts alone
        for index, (grammar, row, _) in enumerate(self._found):
            if row in self._closing:
                grammar.close(torch.from_numpy(self._bits[index]))
        flags = self._choices.lacking(self._bits)
        lacking = {row for (_, row, _), lacks in zip(self._found, flags, strict=True) if lacks}
        for (_, row, key), number in zip(self._found, self._numbers, strict=True):
            if key is None or row in alone or not self._keep(key, row, number, lacking=row in lacking):
                self._masks.give(row, number)
        return sorted({*self._lacking, *self._repeat(unsure, lacking), *lacking})

    def _keep(self, key: StateKey, row: int, number: int, *, lacking: bool) -> bool:
        """Have the device keep a row's mask, unless it keeps one like it or has no place; returns whether it does."""
        mask = self._masks.bits[number]
        known = self._memory.place_of(key) is not None
        place = None if known else self._memory.keep(key, mask, lacking=lacking)
        if place is None:
            return False
        self._memory.keep_widest(key, mask)
        self._masks.keep(place, number)
        self._masks.places[row] = place
        return True

    def _repeat(self, broken: Set[int], lacking: Set[int]) -> list[int]:
        """Give rows the masks that they share; returns the rows whose masks leave, or may leave, no choice."""
        found = list[int]()
        for grammar, row, like in self._repeated:
            if like in broken:
                fill(self._masks, row, grammar)
            elif place := self._masks.places[like]:
                self._masks.places[row] = place
            else:
                self._masks.give_same(row, like)
            if like in broken or like in lacking:
                found.append(row)
        return found


def fill(masks: RowMasks, row: int, grammar: Grammar) -> None:
    """Give a row a grammar's mask, computed on this thread."""
    (number,) = masks.add(1)
    grammar.fill_mask(torch.from_numpy(masks.bits[number]))
    masks.give(row, number)


def start_filling(masks: RowMasks, grammars: Sequence[tuple[Grammar, int]]) -> Filling:
    """Begin to fill the masks of (grammar, row); they are complete once `Filling.wait` has returned."""
    ours = [(grammar, row) for grammar, row in grammars if isinstance(grammar, JsonGrammar)]
    others = [] if len(ours) == len(grammars) else [each for each in grammars if not isinstance(each[0], JsonGrammar)]
    if not ours:
        return Filling(masks, None, others, None)
    work = _Work(masks, ours)
    return Filling(masks, work, others, work.start())


def extend_field(grammar: Grammar, token: int) -> bool:
    """Advance a grammar by a token if that needs no matcher; `catch_up` later gives its matcher the token."""
    return isinstance(grammar, JsonGrammar) and grammar.extend_field(token)


def catch_up(grammars: Iterable[Grammar | None]) -> None:
    """Have the grammars' matchers consume the tokens that they have missed."""
    late = [each for each in grammars if isinstance(each, JsonGrammar) and each.behind]
    if not late:
        return
    consumed = _executor().consume_token_par([each.late() for each in late])
    for grammar, done in zip(late, consumed, strict=True):
        grammar.caught_up(consumed=done)


def advance_all(grammars: Sequence[tuple[Grammar, int]]) -> list[EngineError | None]:
    """Advance each grammar by its token; returns the error of each that cannot continue."""
    matchers = [(grammar.matcher, token) for grammar, token in grammars if isinstance(grammar, JsonGrammar)]
    consumed = iter(_executor().consume_token_par(matchers) if matchers else ())
    errors: list[EngineError | None] = []
    for grammar, token in grammars:
        error: EngineError | None = None
        if isinstance(grammar, JsonGrammar):
            error = grammar.advanced(token, consumed=next(consumed))
        else:
            try:
                grammar.advance(token)
            except EngineError as raised:
                error = raised
        errors.append(error)
    return errors


def _compute(executor: LLExecutor, matchers: list[tuple[LLMatcher, int]], rows: NDArray[np.int32]) -> None:
    executor.unsafe_compute_mask_ptr(matchers, rows.ctypes.data, rows.strides[0], len(rows))


@cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor  # noqa: PLC0415  an engine without grammars does not need it

    return LLExecutor(THREADS)
