"""One request's output: turns its tokens into text, deltas and finally a result.

A request's deltas together are its whole text, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from thothy_ai.engine.api import CallDelta, Delta, FinishReason, GenerationRequest, GenerationResult, TokenLogprob
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, TokenEvent
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.messages import joined
from thothy_ai.engine.text.answers import AnswerShape
from thothy_ai.engine.text.detokenizer import Detokenizer, StopStrings
from thothy_ai.engine.text.division import Divider, Gained
from thothy_ai.engine.text.repetition import RepetitionDetector
from thothy_ai.engine.text.token_bytes import TokenBytes

Logprobs = Sequence[TokenLogprob | None]


class Stop(NamedTuple):
    """A core request to stop. `saved`: unused tokens of its budget, if it was stopped for repetition."""

    core_id: str
    reason: FinishReason = FinishReason.ABORTED
    saved: int = 0


class Advance(NamedTuple):
    """What follows from an event: outputs to the client, requests to the core, and core requests to stop."""

    outputs: Sequence[Output] = ()
    submits: Sequence[CoreRequest] = ()
    stops: Sequence[Stop] = ()
    ended: bool = False


NOTHING = Advance()


class TextStream:
    """Implements `Follower` for a single text, which ends before a stop string; its tokens include that string's.

    `number`: the number of the candidate.
    """

    def __init__(self, request: GenerationRequest, sink: Sink, vocabulary: TokenBytes, number: int = 0) -> None:
        self.request, self.sink, self._number = request, sink, number
        self.core_ids = (request.id,)
        self._detokenizer = Detokenizer(vocabulary)
        self._stops = StopStrings(request.sampling.stop)
        detects = request.schema is not None if request.stop_repetition is None else request.stop_repetition
        self._repetition = RepetitionDetector(vocabulary, request.schema) if detects else None
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._sent = self._sent_texts = 0  # tokens and texts already sent in deltas
        self._min_tokens = request.sampling.min_tokens
        self._logprobs: list[TokenLogprob | None] = []
        self._streams = request.stream
        self._report_after = request.report_after
        self._error: EngineError | None = None  # the frontend's, not the core's
        self._divider: Divider | None = None
        self._thought_tokens = 0
        self._unsent_thoughts, self._unsent_calls = "", list[CallDelta]()

    @property
    def stop_reason(self) -> FinishReason | None:
        """Why the text ends before the core ends it: it reached a stop string, or repeats itself."""
        if self._stops.hit:
            return FinishReason.STOP
        return FinishReason.REPETITION if self._repetition is not None and self._repetition.found else None

    def begin(self, base: CoreRequest, answer: AnswerShape | None) -> Sequence[CoreRequest]:
        self.divide(answer)
        return (base,)

    def divide(self, answer: AnswerShape | None) -> None:
        """Divide the output; must be called before there is any."""
        if answer is not None:
            self._divider = answer.divider()
            if answer.rules is not None and not self.request.stop_repetition:
                self._repetition = None  # thoughts and calls may repeat

    def advance(self, event: Event) -> Advance:
        if not isinstance(event, TokenEvent):
            return Advance(self.end(event), ended=True)
        before, outputs, reason = self.stop_reason, self.take(event.tokens, event.logprobs), self.stop_reason
        if reason is None or before is not None:
            return Advance(outputs) if outputs else NOTHING
        saved = max(0, self.request.sampling.max_tokens - len(self._tokens))
        return Advance(outputs, stops=(Stop(event.id, reason, saved if reason is FinishReason.REPETITION else 0),))

    def fail(self, event: Event, error: EngineError) -> Advance:
        """Ignore further tokens; the request fails with its usage, once the core has ended it."""
        self._error = error
        if isinstance(event, TokenEvent):
            return Advance(stops=(Stop(event.id),))
        return Advance(self.end(event), ended=True)

    def stop(self) -> Sequence[Stop]:
        return ()

    def start_deltas(self) -> list[Output]:
        if self._streams:
            return []
        self._streams = True
        return self._delta()

    def take(self, tokens: Sequence[int], logprobs: Logprobs | None = None) -> list[Output]:
        """Add tokens, and their log-probabilities; a delta if the request streams and some text became final, or if it
        is to report early.
        """
        if self.stop_reason is not None or self._error is not None:
            return []
        if self.request.sampling.logprobs is not None:
            self._logprobs += logprobs or (None,) * len(tokens)
        if self._repetition is not None:
            tokens = tokens[: self._repetition.push(tokens)]
        if self.request.sampling.stop or self._divider is not None:
            for token in tokens:  # one by one: the tokens end with the one that completes a stop string
                self._add((token,))
                if self._stops.hit:
                    break
        else:
            self._add(tokens)
        return self._delta()

    def end(self, event: FinishedEvent | RefusedEvent) -> list[Output]:
        """The remaining text and the result, or the failure."""
        if isinstance(event, RefusedEvent):
            return [Failure(self.request.id, event.error)]
        usage = replace(event.usage, output_tokens=len(self._tokens), thought_tokens=self._thought_tokens)
        error = self._error or (None if self.stop_reason else event.error)
        if error is not None:
            return [Failure(self.request.id, error, usage)]
        if self._divider is not None:
            self._texts.append(self._stops.push(self._said(self._divider.flush())))
        self._texts.append(self._stops.flush())
        logprobs = tuple(self._logprobs[: len(self._tokens)])
        result = GenerationResult(
            id=self.request.id,
            text="".join(self._texts),
            token_ids=tuple(self._tokens),
            finish_reason=self.stop_reason or event.reason,
            usage=usage,
            logprobs=logprobs,
            mean_logprob=mean_logprob(logprobs),
            thoughts="" if self._divider is None else self._divider.thoughts,
            calls=() if self._divider is None else self._divider.calls,
        )
        return [*self._delta(last=True), result]

    def _add(self, tokens: Sequence[int]) -> None:
        self._tokens += tokens
        if (divider := self._divider) is None:
            text = self._detokenizer.push(tokens)
        else:
            thinking = divider.thinking
            gained = divider.push("".join(divider.tokens.get(t) or self._detokenizer.push((t,)) for t in tokens))
            self._thought_tokens += len(tokens) if thinking or divider.thinking else 0
            text = self._said(gained)
        self._texts.append(self._stops.push(text) if len(self._tokens) > self._min_tokens else text)

    def _said(self, gained: Gained) -> str:
        self._unsent_thoughts += gained.thoughts
        self._unsent_calls += gained.calls
        return gained.said

    def _delta(self, *, last: bool = False) -> list[Output]:
        """The text that was not sent yet, if it is time to send it."""
        count = len(self._tokens)
        if not self._streams and (last or not 0 < self._report_after <= count):
            return []
        text, unsent = "".join(self._texts[self._sent_texts :]), self._tokens[self._sent :]
        thoughts, calls = self._unsent_thoughts, joined(self._unsent_calls)
        if not (text or thoughts or calls or (last and unsent)):
            return []
        self._unsent_thoughts, self._unsent_calls = "", []
        logprobs = tuple(self._logprobs[self._sent : count])
        self._sent, self._sent_texts = count, len(self._texts)
        # Reports grow further apart: an output of n tokens has O(log n) of them.
        self._report_after = count + (count + 1) // 2 if self.request.report_again else 0
        return [Delta(self.request.id, text, tuple(unsent), self._number, logprobs, thoughts, calls)]


def mean_logprob(logprobs: Logprobs) -> float | None:
    """The mean over the tokens that were drawn; None if there are none."""
    drawn = [each.logprob for each in logprobs if each is not None]
    return sum(drawn) / len(drawn) if drawn else None
