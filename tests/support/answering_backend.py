"""A backend that answers with what the test says, in pieces; one that is left without an end waits for its abort.

A piece is a text, or a delta with thoughts and calls, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from thothy_ai.engine.api import (
    Choice,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    TokenLogprob,
    ToolCall,
    Usage,
)
from thothy_ai.engine.api.backend import Failure, Sink
from thothy_ai.engine.api.errors import EngineError

Answer = Sequence[str | Delta] | EngineError


class AnsweringBackend:
    """`answer` gives the pieces of an answer, or an error; `hang` keeps the end back. Requests are kept, and aborts."""

    def __init__(self, answer: Callable[[GenerationRequest], Answer]) -> None:
        self.answer = answer
        self.hang = False
        self.reason = FinishReason.STOP
        self.logprobs: tuple[TokenLogprob | None, ...] = ()
        self.others: tuple[Choice, ...] = ()
        self.capacity = 4
        self.tokens: tuple[bytes, ...] = ()
        self.requests: list[GenerationRequest] = []
        self.aborted = threading.Event()
        self._sinks: dict[str, Sink] = {}

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        self.requests.append(request)
        answer = self.answer(request)
        if isinstance(answer, EngineError):
            sink([Failure(request.id, answer)])
            return
        sink([self._delta(request, number, piece) for number, piece in enumerate(answer)])
        self._sinks[request.id] = sink
        if not self.hang:
            self._end(request.id, answer, self.reason)

    def _delta(self, request: GenerationRequest, number: int, piece: str | Delta) -> Delta:
        """With log-probabilities, each piece is a token."""
        if isinstance(piece, Delta):
            return replace(piece, id=request.id)
        if not self.logprobs:
            return Delta(request.id, piece, ())
        return Delta(request.id, piece, (number,), logprobs=self.logprobs[number : number + 1])

    def abort(self, request_id: str) -> None:
        if request_id in self._sinks:
            self._end(request_id, (), FinishReason.ABORTED)
            self.aborted.set()

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of requests without an end."""
        return tuple(self._sinks)

    def finish_all(self, text: str) -> None:
        """End what hangs, as if it were written."""
        for request_id in self.open:
            self._end(request_id, (text,), self.reason)

    def fail_all(self, error: EngineError) -> None:
        for request_id in self.open:
            self._sinks.pop(request_id)([Failure(request_id, error)])

    def stream(self, request_id: str) -> None:
        raise NotImplementedError

    def stats(self) -> EngineStats:
        return EngineStats()

    def info(self) -> EngineInfo:
        return EngineInfo(
            "5f6d0d5e-0000-4000-8000-000000000000", "answering", "cpu", "float32", 16, 10, 100, 0.0,
            capacity=self.capacity, model_name="answering",
        )  # fmt: skip

    def vocabulary(self) -> tuple[bytes, ...]:
        return self.tokens

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def _end(self, id_: str, pieces: Sequence[str | Delta], reason: FinishReason) -> None:
        tokens, mean = tuple(range(len(self.logprobs))), -0.5 if self.logprobs else None
        deltas = [Delta(id_, each, ()) if isinstance(each, str) else each for each in pieces]
        calls: dict[int, ToolCall] = {}
        for call in (call for delta in deltas for call in delta.calls):
            known = calls.get(call.index, ToolCall("", ""))
            calls[call.index] = ToolCall(known.name + call.name, known.arguments + call.arguments)
        text, thoughts = "".join(each.text for each in deltas), "".join(each.thoughts for each in deltas)
        first = Choice(text, tokens, reason, self.logprobs, mean, thoughts, tuple(calls.values()))
        usage = Usage(40, 30, 20, 1.5, thought_tokens=7 if thoughts else 0)
        self._sinks.pop(id_)([GenerationResult.of(id_, (first, *self.others), usage)])
