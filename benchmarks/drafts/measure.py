"""Tokens per second with drafts and without, on a GPU: recorded outputs stand for what a shape's random weights draw.

Each step's results are replaced by the recorded tokens when the host reads them. Which tokens the device computes with
does not change how long that takes. Tokens that grammars forced are left out: they need no draft.
"""

from __future__ import annotations

import gc
import queue
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.drafts.recording import Recorded
from thothy_ai.bench.models import bench_model
from thothy_ai.engine.api import CoreStats, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import StepResult
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core.parts import LaunchedStep
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

ROWS = 512  # of the engine
AT_ONCE = 1, 4, 16, 32, 64, 256, ROWS
_OUTPUTS = 3  # of each row, at least; few rows get no more, so that they do not take long
_MOST = 64
_ROUNDS = 2  # the first learns, and has the prompts computed


@dataclass(frozen=True, eq=False, slots=True)
class _Replaced:
    """A launched step whose results are these tokens."""

    launched: LaunchedStep
    tokens: list[int]

    def read(self) -> StepResult:
        return self.launched.read()._replace(tokens=self.tokens)


class Replaying:
    """An engine that writes recorded outputs."""

    def __init__(self, loaded: LoadedModel, options: EngineOptions) -> None:
        self._outputs: dict[str, Sequence[int]] = {}
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._core: EngineCore = build_core(loaded, options, self._events.put)
        read = self._core._read

        def reading(launched):  # noqa: ANN001, ANN202 - of the core's own types
            members = launched.scheduled.sampling_members
            tokens = [self._token(each.request.id, position - each.prompt_tokens) for each, position in members]
            return read(launched._replace(handle=_Replaced(launched.handle, tokens)))

        self._core._read = reading  # type: ignore[method-assign]
        self._core.start()

    def _token(self, name: str, place: int) -> int:
        output = self._outputs[name]
        return output[place] if place < len(output) else 0

    def drain(self, name: str, records: Sequence[Recorded], at_once: int) -> tuple[float, CoreStats]:
        """Seconds in which all are written, so many at once; and the counters at the end."""
        left = [(f"{name}-{number}", each) for number, each in enumerate(records)][::-1]
        began, running = time.perf_counter(), 0
        while left or running:
            while left and running < at_once:
                self._submit(*left.pop())
                running += 1
            running -= sum(isinstance(event, FinishedEvent) for event in self._events.get())
            if self._core.failure is not None:
                raise self._core.failure
        return time.perf_counter() - began, self._core.stats().core

    def _submit(self, name: str, each: Recorded) -> None:
        self._outputs[name] = [span[0] for span in each.spans]
        sampling = SamplingParams(max_tokens=len(each.spans), temperature=0.8, top_p=0.9, ignore_eos=True)
        self._core.submit(CoreRequest(name, each.prompt, sampling, profile=each.kind))

    def close(self) -> None:
        """Free the engine, whose memory the next one takes."""
        self._core.stop()
        self._core.join()
        self._core._read = None  # type: ignore[assignment,method-assign]  # a circle
        del self._core
        gc.collect()
        torch.cuda.empty_cache()


def measure(shape: str, weights: str, records: Sequence[Recorded]) -> list[tuple[str, ...]]:
    """A row for each number of sequences at once: tokens per second without drafts and with, the ratio, and what share
    of the drafts was right. Seconds are printed as they are known.
    """
    options = EngineOptions(url="", weights=weights, max_rows=ROWS)
    loaded = bench_model(shape, options)
    found: dict[int, list[tuple[float, CoreStats, CoreStats]]] = {rows: [] for rows in AT_ONCE}
    for drafts in (False, True):
        engine = Replaying(loaded, replace(options, drafts=drafts))
        for rows in AT_ONCE:
            these = _these(records, rows)
            for number in range(_ROUNDS):
                before = engine._core.stats().core
                seconds, after = engine.drain(f"{rows}-{number}", these, rows)
            found[rows].append((seconds, before, after))
            print(f"{rows} at once, {'with' if drafts else 'without'} drafts: {seconds:.2f} s", flush=True)
        engine.close()
    table = []
    for rows, ((plain, *_), (drafted, before, after)) in found.items():
        tokens = sum(len(each.spans) for each in _these(records, rows))
        sent = after.drafted_tokens - before.drafted_tokens
        right = (after.accepted_tokens - before.accepted_tokens) / max(1, sent)
        rates = f"{tokens / plain:,.0f}", f"{tokens / drafted:,.0f}"
        table.append((f"{rows}", f"{tokens:,}", *rates, f"{plain / drafted:.3f}", f"{sent:,}", f"{right:.2f}"))
    return table


def _these(records: Sequence[Recorded], rows: int) -> list[Recorded]:
    """Outputs for so many rows: the first ones again and again, if there are too few."""
    wanted = max(_OUTPUTS * rows, min(len(records), _MOST))
    usable = [each for each in records if each.spans]
    return [usable[number % len(usable)] for number in range(wanted)]
