"""How the frontend follows a client's request, which can need several requests to the core.

The first core request has the client request's id; the others' ids derive from it. Each is computed separately, and
finds the prompt in the prefix cache. The usage of the client's request is their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf
from typing import Protocol

from thothy_ai.engine.api import CallDelta, Choice, Delta, FinishReason, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.core import CoreRequest, Event
from thothy_ai.engine.api.errors import EngineError, UninvolvedError
from thothy_ai.engine.text.answers import AnswerShape
from thothy_ai.engine.text.stream import Advance, Stop, TextStream
from thothy_ai.engine.text.token_bytes import TokenBytes


class Follower(Protocol):
    """Turns the core's events into a request's outputs. Used by the frontend's output thread, `begin` before that."""

    request: GenerationRequest
    sink: Sink

    @property
    def core_ids(self) -> tuple[str, ...]:
        """Ids of all core requests that it can make."""

    def begin(self, base: CoreRequest, answer: AnswerShape | None) -> Sequence[CoreRequest]:
        """The first core requests; `base` is the core request if a single one were enough. `answer`: how the output is
        divided, if it is.
        """

    def advance(self, event: Event) -> Advance:
        """What follows from an event of one of its requests; at the end of the last, the result or the failure."""

    def fail(self, event: Event, error: EngineError) -> Advance:
        """End with this error, which `advance` raised for the event."""

    def start_deltas(self) -> list[Output]:
        """Send deltas from now on; returns the deltas that are due already. No effect if it sends them already."""

    def stop(self) -> Sequence[Stop]:
        """End early; returns the core requests to stop, except the one with the request's own id."""


def core_ids(request_id: str, count: int) -> tuple[str, ...]:
    """Ids of the core's requests for a request; the first is its own."""
    return (request_id, *(f"{request_id}\0{number}" for number in range(1, count)))


def usage_of_all(parts: Sequence[Usage]) -> Usage | None:
    """The prompt once, with the fewest cached tokens that a part had, and the sums of the rest."""
    if not parts:
        return None
    return Usage(
        parts[0].prompt_tokens,
        min(part.cached_tokens for part in parts),
        sum(part.output_tokens for part in parts),
        sum(part.compute_seconds for part in parts),
        sum(part.preemptions for part in parts),
        sum(part.thought_tokens for part in parts),
        tuple(sorted({digest for part in parts for digest in part.adapters})),
    )


class GroupFollower:
    """The early end of a request that makes at most `count` core requests."""

    def __init__(self, request: GenerationRequest, sink: Sink, count: int) -> None:
        self.request, self.sink = request, sink
        self.core_ids = core_ids(request.id, count)
        self._open: dict[str, None] = {}  # the core's requests that have not ended
        self._error: EngineError | None = None
        self._aborted = False
        self._late_deltas = request.stream

    def fail(self, event: Event, error: EngineError) -> Advance:
        """End at once, since no usage is to be expected."""
        del event
        stops = [Stop(core_id) for core_id in self.core_ids]
        return Advance([Failure(self.request.id, error)], stops=stops, ended=True)

    def stop(self, error: EngineError | None = None) -> Sequence[Stop]:
        """Stop all open core requests. The first error is kept, unless it is an UninvolvedError."""
        if self._error is None or isinstance(self._error, UninvolvedError):
            self._error = error or self._error
        self._aborted = error is None
        return [Stop(core_id) for core_id in self._open]


class Candidates(GroupFollower):
    """Implements `Follower`: texts drawn over one prompt; if there are more than wanted, the best are returned."""

    def __init__(self, request: GenerationRequest, sink: Sink, vocabulary: TokenBytes) -> None:
        super().__init__(request, sink, request.candidates)
        self._ranked = request.candidates > request.n
        self._streams: dict[str, TextStream] = {}
        for number, core_id in enumerate(self.core_ids):
            sampling = request.sampling
            if sampling.seed is not None and number:
                sampling = replace(sampling, seed=candidate_seed(sampling.seed, number))
            if self._ranked and sampling.logprobs is None:
                sampling = replace(sampling, logprobs=0)
            early = request.report_after if not (number or self._ranked) else 0
            streams = request.stream and not self._ranked
            own = replace(request, sampling=sampling, n=1, best_of=None, stream=streams, report_after=early)
            self._streams[core_id] = TextStream(own, sink, vocabulary, number)
        self._open = dict.fromkeys(self.core_ids)
        self._results: dict[str, GenerationResult] = {}
        self._usages: list[Usage] = []

    def begin(self, base: CoreRequest, answer: AnswerShape | None) -> Sequence[CoreRequest]:
        for stream in self._streams.values():
            stream.divide(answer)
        return [
            replace(base, id=core_id, sampling=stream.request.sampling) for core_id, stream in self._streams.items()
        ]

    def advance(self, event: Event) -> Advance:
        advance = self._streams[event.id].advance(event)
        if not advance.ended:
            return advance
        *outputs, end = advance.outputs
        del self._open[event.id]
        stops: Sequence[Stop] = ()
        if isinstance(end, GenerationResult):
            self._results[event.id] = end
            self._usages.append(end.usage)
        elif isinstance(end, Failure):  # the whole fails, and the others stop
            self._usages += [end.usage] if end.usage is not None else []
            stops = self.stop(end.error)
        if self._open:
            return Advance(outputs, stops=stops)
        return Advance([*outputs, *self._outputs()], ended=True)

    def start_deltas(self) -> list[Output]:
        self._late_deltas = True
        if self._ranked:
            return []  # until the end
        return [output for stream in self._streams.values() for output in stream.start_deltas()]

    def _outputs(self) -> list[Output]:
        """The failure; or the result, after its deltas if they had to wait for the ranking."""
        usage = usage_of_all(self._usages)
        if usage is None or self._error is not None:
            return [Failure(self.request.id, self._error or EngineError("no text was made"), usage)]
        choices = [self._results[core_id].choices[0] for core_id in self.core_ids]
        if self._ranked:
            choices.sort(key=lambda each: -inf if each.mean_logprob is None else each.mean_logprob, reverse=True)
            choices = choices[: self.request.n]
        if self._aborted:
            choices[0] = replace(choices[0], finish_reason=FinishReason.ABORTED)
        if self.request.sampling.logprobs is None:
            choices = [replace(choice, logprobs=()) for choice in choices]
        deltas = late_deltas(self.request, choices) if self._ranked and self._late_deltas else []
        return [*deltas, GenerationResult.of(self.request.id, choices, usage)]


def late_deltas(request: GenerationRequest, choices: Sequence[Choice]) -> list[Output]:
    """The texts of choices that could not be sent before they were ranked."""
    return [
        Delta(
            request.id,
            each.text,
            each.token_ids,
            number,
            each.logprobs,
            each.thoughts,
            tuple(CallDelta(at, call.name, call.arguments) for at, call in enumerate(each.calls)),
        )
        for number, each in enumerate(choices)
    ]


def candidate_seed(seed: int, number: int) -> int:
    """The seed (63 bits) of a further candidate of a request with a seed."""
    return int.from_bytes(sha256(f"{seed}/{number}".encode()).digest()[:8]) >> 1
