"""Runs jobs through an engine core, all submitted at once, and keeps what is needed to judge the run.

The core's thread only keeps references. Everything is evaluated after the clock has stopped.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thothy_ai.bench.workload import TokenDraw, WorkloadJob
from thothy_ai.engine.api import EngineStats, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, TokenEvent
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.execution.graphs import uncollected
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

_WATCH_SECONDS = 0.5  # between looks at a drain, which each take the interpreter's lock for a moment

OnProgress = Callable[[int, EngineStats], None]


class DrainFailedError(EngineError):
    """A job failed, or did not get exactly the number of tokens that it asked for."""

    code = "drain_failed"


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain, timed from the first submission to the last token.

    `finished`: the requests in the order in which they ended, with their tokens. The drain's counters are `after` minus
    `before`. `kv_used` (blocks in use, as a share of the pool) and `running` (sequences) were read after each step that
    produced tokens.
    """

    seconds: float
    finished: tuple[tuple[CoreRequest, tuple[int, ...]], ...]
    before: EngineStats
    after: EngineStats
    kv_used: tuple[float, ...]
    running: tuple[int, ...]
    urgent: tuple[UrgentJob, ...] = ()

    def gained(self, counter: str) -> float:
        """How much a counter of the core grew."""
        return float(getattr(self.after.core, counter) - getattr(self.before.core, counter))


class UrgentJob(NamedTuple):
    """A job submitted while others ran: seconds until its first token, and its device-seconds."""

    waited: float
    compute_seconds: float


class Later(NamedTuple):
    """Requests to be submitted during a drain, with `every` seconds between them."""

    requests: Sequence[CoreRequest] = ()
    every: float = math.inf


NO_LATER = Later()


class BenchCore:
    """A started core for a model that is already on its device, or on the devices of a group."""

    def __init__(self, loaded: LoadedModel, options: EngineOptions, group: Group | None = None) -> None:
        self._inbox = _Inbox()
        self.core: EngineCore = build_core(loaded, options, self._inbox.take, group=group)
        self._inbox.watch(self.core)
        self.core.start()

    def run(
        self, requests: Sequence[CoreRequest], on_progress: OnProgress = lambda _, __: None, later: Later = NO_LATER
    ) -> Drained:
        """Submit the requests and wait for them. Raises `DrainFailedError` if a job did not get its tokens.

        `on_progress` is called from time to time with the number of finished jobs and the core's counters.
        """
        self._inbox.expect(len(requests) + len(later.requests))
        submitted: dict[str, float] = {}
        gc.collect()
        with uncollected():  # the collector would repeatedly walk results that a real engine doesn't keep
            before, begin = self.core.stats(), time.perf_counter()
            self._submit(requests)
            while not self._inbox.wait(min(_WATCH_SECONDS, later.every / 10)):
                if self.core.failure is not None:
                    raise DrainFailedError(str(self.core.failure))
                if time.perf_counter() - begin > later.every * (1 + len(submitted)) and len(submitted) < len(
                    later.requests
                ):
                    request = later.requests[len(submitted)]
                    submitted[request.id] = time.perf_counter()
                    self.core.submit(request)
                on_progress(len(requests) - self._inbox.left, self.core.stats())
            steps, end = self._inbox.collect()
        return Drained(
            seconds=end - begin,
            finished=_outputs([*requests, *later.requests], [event for step in steps for event in step.events]),
            before=before,
            after=self.core.stats(),
            kv_used=tuple(step.stats.blocks.used / step.stats.blocks.total for step in steps),
            running=tuple(step.stats.scheduler.running for step in steps),
            urgent=tuple(_urgent(id_, at, steps) for id_, at in submitted.items()),
        )

    def _submit(self, requests: Sequence[CoreRequest]) -> None:
        """Submit them before the core takes any: its thread would hold the interpreter's lock for most of the time, and
        the longer its launches took, the later it would know all jobs.
        """
        submitting = threading.Lock()

        def wait() -> None:
            with submitting:
                pass

        with submitting:
            self.core._requests.put(wait)
            for request in requests:
                self.core.submit(request)

    def close(self) -> None:
        """End the core after its current step. Its memory is freed with the last reference to this object."""
        self.core.stop()
        self.core.join()


def as_requests(jobs: Sequence[WorkloadJob], draw: TokenDraw, prefix: str) -> list[CoreRequest]:
    """Greedy requests, end-of-text ignored, with ids that begin with `prefix`."""
    return [
        CoreRequest(
            id=f"{prefix}-{index}",
            prompt=draw.prompt(job),
            sampling=SamplingParams(max_tokens=job.output_tokens, ignore_eos=True),
            profile=job.kind,
        )
        for index, job in enumerate(jobs)
    ]


@dataclass(frozen=True, slots=True)
class _Step:
    events: list[Event]
    stats: EngineStats
    at: float


class _Inbox:
    """Collects the core's reports until the expected number of requests have ended."""

    def __init__(self) -> None:
        self._core: EngineCore | None = None
        self._steps: list[_Step] = []
        self._left = 0
        self._ended_at = 0.0
        self._done = threading.Event()

    def watch(self, core: EngineCore) -> None:
        """Read this core's counters with each report."""
        self._core = core

    def expect(self, count: int) -> None:
        """Reset for a drain of `count` requests. Call this before the first submit."""
        self._steps, self._left = [], count
        self._done.clear()

    def take(self, events: list[Event]) -> None:
        """Called on the core's thread or, for a refusal, on the submitting thread."""
        if not events:
            return
        if self._core is not None:
            self._steps.append(_Step(events, self._core.stats(), time.perf_counter()))
        self._left -= sum(type(event) is not TokenEvent for event in events)
        if not self._left:
            self._ended_at = time.perf_counter()
            self._done.set()

    @property
    def left(self) -> int:
        """The number of requests that have not ended."""
        return self._left

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`; returns whether all requests have ended."""
        return self._done.wait(seconds)

    def collect(self) -> tuple[list[_Step], float]:
        """The reports, and the time of the last one, once all requests have ended."""
        return self._steps, self._ended_at


def _urgent(request_id: str, submitted: float, steps: Iterable[_Step]) -> UrgentJob:
    own = [(step.at, event) for step in steps for event in step.events if event.id == request_id]
    last = own[-1][1]
    return UrgentJob(own[0][0] - submitted, last.usage.compute_seconds if isinstance(last, FinishedEvent) else 0.0)


def _outputs(
    requests: Sequence[CoreRequest], events: Sequence[Event]
) -> tuple[tuple[CoreRequest, tuple[int, ...]], ...]:
    by_id = {request.id: request for request in requests}
    tokens: dict[str, list[int]] = defaultdict(list)
    finished = []
    for event in events:
        if isinstance(event, TokenEvent):
            tokens[event.id] += event.tokens
            continue
        request = by_id[event.id]
        output = tuple(tokens[event.id])
        if isinstance(event, RefusedEvent):
            raise DrainFailedError(f"job {event.id} is refused: {event.error}")
        if event.error is not None or not len(output) == event.usage.output_tokens == request.sampling.max_tokens:
            why, wanted = event.error or event.reason, request.sampling.max_tokens
            raise DrainFailedError(f"job {event.id} has {len(output)} of {wanted} tokens: {why}")
        finished.append((request, output))
    return tuple(finished)
