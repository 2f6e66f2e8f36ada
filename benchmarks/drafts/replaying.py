"""An engine that writes recorded outputs: what it draws is replaced when the host reads it.

Which tokens the device computes with does not change how long that takes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import torch

from benchmarks.drafts.recording import Recorded
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, OnEvents, RefusedEvent
from thothy_ai.engine.api.step import StepResult
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core.parts import LaunchedStep
from thothy_ai.engine.grammar.compiler import GrammarCompiler

PROMPTS = 64  # are computed at once
COUNTS = "steps", "output_tokens", "drafted_tokens", "accepted_tokens"


@dataclass(frozen=True, slots=True)
class Drained:
    """What writing some outputs took: seconds, and what the core counted."""

    seconds: float
    steps: int
    output_tokens: int
    drafted_tokens: int
    accepted_tokens: int


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
        self._left: list[tuple[str, Recorded]] = []
        self._running, self._done = 0, Future[float]()
        self.core = build(self._take)
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
        self._run([(f"prompt-{number}", replace(each, max_tokens=1)) for number, each in enumerate(records)], PROMPTS)

    def drain(self, records: Sequence[Recorded], at_once: int) -> Drained:
        """Write all outputs, so many at once. An engine does this once: it would remember them."""
        before = self.core.stats().core
        seconds = self._run([(f"{number}", each) for number, each in enumerate(records)], at_once)
        after = self.core.stats().core
        return Drained(seconds, *(getattr(after, name) - getattr(before, name) for name in COUNTS))

    def _run(self, named: list[tuple[str, Recorded]], at_once: int) -> float:
        """The seconds that outputs take, so many at once."""
        first, self._left = named[:at_once], named[at_once:][::-1]
        self._running, self._done, began = len(first), Future(), self._now()
        for each in first:
            self._submit(*each)
        return self._done.result() - began

    def _submit(self, name: str, each: Recorded) -> None:
        self._outputs[name] = each.tokens
        sampling = SamplingParams(max_tokens=each.max_tokens, temperature=0.8, top_p=0.9)
        request, grammar = CoreRequest(name, each.prompt, sampling, profile=each.kind), None
        if each.max_tokens == 1:  # a prompt: what follows it is not remembered
            request = replace(request, profile="prompts")
        elif each.schema is not None:
            grammar = self._grammars.compile(each.schema)
            grammar.limit(each.max_tokens)
        self.core.submit(request, grammar)

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RefusedEvent | FinishedEvent) and event.error is not None:
                self._done.set_exception(event.error)
                return
            if isinstance(event, FinishedEvent):
                if self._left:
                    self._submit(*self._left.pop())
                else:
                    self._running -= 1
        if not self._running and not self._done.done():
            self._done.set_result(self._now())

    def close(self) -> None:
        """End the core, and free what it had on the device."""
        self.core.stop()
        self.core.join()
        self.core._read = None  # type: ignore[assignment,method-assign]  # a circle
        del self.core
        gc.collect()
        torch.cuda.empty_cache()
