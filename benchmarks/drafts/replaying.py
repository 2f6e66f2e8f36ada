"""An engine that writes recorded outputs: what it draws is replaced when the host reads it.

Which tokens the device computes with does not change how long that takes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from benchmarks.drafts.recording import Recorded
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, OnEvents, RefusedEvent
from thothy_ai.engine.api.step import StepResult
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core.parts import LaunchedStep
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.grammar.memory import MaskMemory

PROMPTS = 64  # are computed at once
_FIRST = 16  # tokens of each row on average, before its speed is measured


class Written(NamedTuple):
    """What an engine has done up to some time, or within some time: seconds, and what its core counted."""

    seconds: float = 0.0
    steps: int = 0
    output_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    busy_seconds: float = 0.0

    def since(self, other: Written) -> Written:
        return Written(*(mine - others for mine, others in zip(self, other, strict=True)))


class Drained(NamedTuple):
    """A `whole` drain. All rows are `full` from when each has written some tokens until none is left for the first that
    ends; then begins the `tail`, if the drain has one.
    """

    whole: Written
    full: Written
    tail: Written


@dataclass(frozen=True, eq=False, slots=True)
class _Replaced:
    """A launched step whose results are these tokens."""

    launched: LaunchedStep
    tokens: list[int]

    def read(self) -> StepResult:
        return self.launched.read()._replace(tokens=self.tokens)


class Replaying:
    """`build` makes the engine's core, not started. `end` ends a text; `now` is the clock that times outputs."""

    def __init__(
        self,
        build: Callable[[OnEvents], EngineCore],
        grammars: GrammarCompiler,
        end: int,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._grammars, self._end, self._now = grammars, end, now
        self._outputs: dict[str, Sequence[int]] = {}
        self._left: list[tuple[CoreRequest, Grammar | None]] = []
        self._running, self._at_once, self._done = 0, 0, Future[Written]()
        self._until_full, self._tail = 0, True  # tokens of all drains until all rows are full; whether there is a tail
        self._marks: list[Written] = []  # where all rows were full, and where the tail began
        self.core = build(self._take)
        self._drafter = self.core._drafter
        read = self.core._read

        def reading(launched):  # noqa: ANN001, ANN202 - of the core's own types
            members = launched.scheduled.sampling_members
            tokens = [self._token(each.request.id, position - each.prompt_tokens) for each, position in members]
            return read(launched._replace(handle=_Replaced(launched.handle, tokens)))

        self.core._read = reading  # type: ignore[method-assign]
        self.core.start()

    def _token(self, name: str, place: int) -> int:
        output = self._outputs[name]
        return output[place] if place < len(output) else self._end

    def prepare(self, records: Sequence[Recorded]) -> None:
        """Compute the prompts of these outputs, so that a drain finds their KV in the prefix cache."""
        self._run([replace(each, max_tokens=1) for each in records], PROMPTS)

    def renew(self, *, drafts: bool) -> None:
        """Forget the masks of earlier drains, and have drafts in the next or not. Only while nothing runs."""
        self.core._masks = MaskMemory(self.core._requests._vocab_size)
        self.core._drafter = self._drafter if drafts else None

    def drain(self, records: Sequence[Recorded], at_once: int, *, tail: bool = True) -> Drained:
        """Write all outputs, so many at once; without a `tail`, end when a row stays empty. The engine remembers them
        by their kinds.
        """
        began = self._so_far()
        self._until_full, self._marks, self._tail = began.output_tokens + _FIRST * at_once, [], tail
        ended = self._run(records, at_once)
        full, empty = (*self._marks, ended, ended)[:2]
        return Drained(ended.since(began), empty.since(full), ended.since(empty))

    def _so_far(self) -> Written:
        counted = self.core._stats[2]
        return Written(self._now(), *(getattr(counted, name) for name in Written._fields[1:]))

    def _run(self, records: Sequence[Recorded], at_once: int) -> Written:
        """Write outputs, so many at once; returns how far the engine is then."""
        self._outputs.clear()
        requests = [self._request(f"{number}", each) for number, each in enumerate(records)]
        first, self._left = requests[:at_once], requests[at_once:][::-1]
        self._running, self._at_once, self._done = len(first), at_once, Future()
        for each in first:
            self.core.submit(*each)
        return self._done.result()

    def _request(self, name: str, each: Recorded) -> tuple[CoreRequest, Grammar | None]:
        self._outputs[name] = each.tokens
        sampling = SamplingParams(max_tokens=each.max_tokens, temperature=0.8, top_p=0.9)
        request, grammar = CoreRequest(name, each.prompt, sampling, profile=each.kind), None
        if each.max_tokens == 1:  # a prompt: what follows it is not remembered
            request = replace(request, profile="prompts")
        elif each.schema is not None:
            grammar = self._grammars.compile(each.schema)
            grammar.limit(each.max_tokens)
        return request, grammar

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RefusedEvent | FinishedEvent) and event.error is not None:
                if not self._done.done():
                    self._done.set_exception(event.error)
                return
            if isinstance(event, FinishedEvent):
                if self._left:
                    self.core.submit(*self._left.pop())
                else:
                    self._running -= 1
        self._mark()
        if not self._running and not self._done.done():
            self._done.set_result(self._so_far())

    def _mark(self) -> None:
        """Note where all rows are full, and where the first of them stays empty."""
        so_far = self._so_far()
        if not self._marks and so_far.output_tokens >= self._until_full:
            self._marks.append(so_far)
        elif len(self._marks) == 1 and self._running < self._at_once:
            self._marks.append(so_far)
            if not self._tail:
                for name in self._outputs:
                    self.core.abort(name)

    def close(self) -> None:
        """End the core, and free what it had on the device."""
        self.core.stop()
        self.core.join()
        self.core._read = None  # type: ignore[assignment,method-assign]  # a circle
        del self.core
        gc.collect()
        torch.cuda.empty_cache()
