"""Drains real jobs, with the prompts, schemas and sampling of their kinds, through the frontend and the core.

One run makes three drains: with schemas for the first time; with schemas again, when the grammars' lexers are warm but
the prefix cache is cold, because each drain has its own salt; and without schemas, with end-of-text ignored and exactly
the output lengths of the first drain. Every output with a schema is parsed and checked against it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from thothy_ai.bench.drain import DrainFailedError
from thothy_ai.bench.validity import flaw
from thothy_ai.engine.api import Delta, EngineStats, FinishReason, GenerationRequest, GenerationResult
from thothy_ai.engine.api.backend import Failure, Output, RunningEngine
from thothy_ai.engine.execution.graphs import uncollected

_WATCH_SECONDS = 0.5
OnProgress = Callable[[int, EngineStats], None]


@dataclass(frozen=True, slots=True)
class KindRun:
    """One drain, timed from the first submission to the last result. Its counters are `after` minus `before`."""

    name: str
    seconds: float
    results: tuple[GenerationResult, ...]  # in the requests' order
    before: EngineStats
    after: EngineStats

    def gained(self, counter: str) -> float:
        """How much a counter of the core grew."""
        return float(getattr(self.after.core, counter) - getattr(self.before.core, counter))

    @property
    def output_tokens(self) -> int:
        return sum(result.usage.output_tokens for result in self.results)


@dataclass(frozen=True, slots=True)
class Validity:
    """Counts of outputs that match their schemas or were cut at `max_tokens`, and the first invalid one's flaw."""

    valid: int
    cut: int
    invalid: int
    first_flaw: str | None


def drain(
    engine: RunningEngine,
    requests: Sequence[GenerationRequest],
    name: str,
    on_progress: OnProgress = lambda _, __: None,
) -> KindRun:
    """Submit all requests under this drain's own salt, and wait. Raises `DrainFailedError` if one fails."""
    inbox = _Inbox(len(requests))
    backend = engine.backend
    salted = [replace(request, id=f"{name}-{index}", salt=name) for index, request in enumerate(requests)]
    gc.collect()
    with uncollected():  # as in `BenchCore.run`
        before, began = backend.stats(), time.perf_counter()
        for request in salted:
            backend.submit(request, inbox.take)
        while not inbox.done.wait(_WATCH_SECONDS):
            if engine.failure is not None:
                raise DrainFailedError(str(engine.failure))
            on_progress(inbox.ended, backend.stats())
    by_id = inbox.results()
    results = tuple(by_id[request.id] for request in salted)
    return KindRun(name, inbox.ended_at - began, results, before, backend.stats())


def without_schemas(requests: Sequence[GenerationRequest], like: KindRun) -> list[GenerationRequest]:
    """The same requests without schemas, with the output lengths of a run."""
    return [
        replace(
            request,
            schema=None,
            sampling=replace(request.sampling, max_tokens=result.usage.output_tokens, ignore_eos=True),
        )
        for request, result in zip(requests, like.results, strict=True)
    ]


def validity(requests: Sequence[GenerationRequest], run: KindRun) -> Validity:
    """Check every output that was not cut against its request's schema."""
    cut = [result.finish_reason is FinishReason.LENGTH for result in run.results]
    flaws = [
        found
        for request, result, is_cut in zip(requests, run.results, cut, strict=True)
        if request.schema is not None and not is_cut and (found := flaw(request.schema, result.text)) is not None
    ]
    return Validity(len(cut) - sum(cut) - len(flaws), sum(cut), len(flaws), flaws[0] if flaws else None)


class _Inbox:
    """Collects the engine's outputs until all requests have ended. The engine's threads only keep references here."""

    def __init__(self, expected: int) -> None:
        self._expected, self._outputs = expected, list[Output]()
        self.ended, self.ended_at = 0, 0.0
        self.done = threading.Event()

    def take(self, outputs: list[Output]) -> None:
        """The sink for outputs. Early reports of texts don't end a request."""
        last = [output for output in outputs if not isinstance(output, Delta)]
        self._outputs += last
        self.ended += len(last)
        if self.ended == self._expected:
            self.ended_at = time.perf_counter()
            self.done.set()

    def results(self) -> dict[str, GenerationResult]:
        """The results by request id. Raises `DrainFailedError` if a request failed."""
        by_id = {}
        for output in self._outputs:
            if isinstance(output, Failure):
                raise DrainFailedError(f"job {output.id} failed: {output.error}")
            if isinstance(output, GenerationResult):
                by_id[output.id] = output
        return by_id
