"""One request's output: its tokens become text, deltas and finally a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thothy_ai.engine.api import Delta, FinishReason, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.backend import Failure, Output, Sink
from thothy_ai.engine.core_api import FinishedEvent, RefusedEvent
from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.text.detokenizer import Detokenizer, StopStrings
from thothy_ai.engine.text.token_bytes import TokenBytes


class Stream:
    """Owned by the frontend's output thread. The text ends before a stop string, and the tokens with its last one."""

    def __init__(self, request: GenerationRequest, sink: Sink, vocabulary: TokenBytes) -> None:
        self.request, self.sink = request, sink
        self._detokenizer = Detokenizer(vocabulary)
        self._stops = StopStrings(request.sampling.stop)
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._sent = 0  # tokens already sent in deltas
        self._streams = request.stream
        self._error: EngineError | None = None  # ours, not the core's

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found, which ends the text."""
        return self._stops.hit

    def start_deltas(self) -> list[Output]:
        """Send deltas from now on; the first has all the text so far. No effect if it streams already."""
        if self._streams:
            return []
        self._streams = True
        return self._delta("".join(self._texts))

    def take(self, tokens: Sequence[int]) -> list[Output]:
        """Add tokens; a delta if the request streams and some text became final."""
        if self.stopped or self._error is not None:
            return []
        text = self._add_one_by_one(tokens) if self.request.sampling.stop else self._add(tokens)
        return self._delta(text)

    def fail(self, error: EngineError) -> None:
        """Ignore further tokens; the request ends with this error, and with its usage."""
        self._error = error

    def end(self, event: FinishedEvent | RefusedEvent) -> list[Output]:
        """The remaining text and the result, or the failure."""
        if isinstance(event, RefusedEvent):
            return [Failure(self.request.id, event.error)]
        usage = replace(event.usage, output_tokens=len(self._tokens))
        error = self._error or (None if self.stopped else event.error)
        if error is not None:
            return [Failure(self.request.id, error, usage)]
        text = self._stops.flush()
        self._texts.append(text)
        return [*self._delta(text, last=True), self._result(event.reason, usage)]

    def _add(self, tokens: Sequence[int]) -> str:
        self._tokens += tokens
        text = self._stops.push(self._detokenizer.push(tokens))
        self._texts.append(text)
        return text

    def _add_one_by_one(self, tokens: Sequence[int]) -> str:
        """Up to the token that completes a stop string."""
        texts: list[str] = []
        for token in tokens:
            texts.append(self._add((token,)))
            if self.stopped:
                break
        return "".join(texts)

    def _delta(self, text: str, *, last: bool = False) -> list[Output]:
        unsent = self._tokens[self._sent :]
        if not self._streams or not (text or (last and unsent)):
            return []
        self._sent = len(self._tokens)
        return [Delta(self.request.id, text, tuple(unsent))]

    def _result(self, reason: FinishReason, usage: Usage) -> GenerationResult:
        return GenerationResult(
            id=self.request.id,
            text="".join(self._texts),
            token_ids=tuple(self._tokens),
            finish_reason=FinishReason.STOP if self.stopped else reason,
            usage=usage,
        )
