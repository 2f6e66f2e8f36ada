"""A beam search as requests to the core: one request of one token for every beam of every step.

Beams find their common prefixes in the prefix cache, and a dropped beam leaves nothing behind. Each step recomputes a
beam's last, incomplete block. Only the log-probabilities of the likeliest next tokens come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thothy_ai.engine.api import (
    BeamSearch,
    Choice,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    Usage,
)
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, TokenEvent
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError
from thothy_ai.engine.api.sampling import MAX_LOGPROBS
from thothy_ai.engine.text.answers import AnswerShape
from thothy_ai.engine.text.beam_search import Beam, Continuations, Search
from thothy_ai.engine.text.detokenizer import Detokenizer
from thothy_ai.engine.text.followers import GroupFollower, late_deltas, usage_of_all
from thothy_ai.engine.text.stream import Advance, Stop
from thothy_ai.engine.text.token_bytes import TokenBytes


class Beams(GroupFollower):
    """Implements `Follower`. `end_tokens` are the model's; `max_context` bounds prompt and output together."""

    def __init__(
        self,
        request: GenerationRequest,
        wanted: BeamSearch,
        sink: Sink,
        vocabulary: TokenBytes,
        end_tokens: Sequence[int],
        max_context: int,
    ) -> None:
        super().__init__(request, sink, wanted.width)
        self._wanted, self._vocabulary, self._max_context = wanted, vocabulary, max_context
        own = () if request.sampling.ignore_eos else end_tokens
        self._ends = frozenset((*own, *request.sampling.stop_token_ids))
        self._continuations: dict[str, Continuations] = {}  # of the present step, by the core's id
        self._usage: Usage | None = None

    def begin(self, base: CoreRequest, answer: AnswerShape | None) -> Sequence[CoreRequest]:  # noqa: ARG002  it has none
        """A request for the first token after the prompt. InvalidRequestError if too many tokens end a text."""
        sampling = self.request.sampling
        longest = max(1, min(sampling.max_tokens, self._max_context - len(base.prompt)))
        self._search = Search(self._wanted, self._ends, sampling.min_tokens, longest)
        if self._search.continuations > MAX_LOGPROBS:
            says = f"beam_search: width and the {len(self._ends)} tokens that end a text are more than {MAX_LOGPROBS}"
            raise InvalidRequestError(says, "beam_search")
        likeliest = SamplingParams(max_tokens=1, ignore_eos=True, logprobs=self._search.continuations)
        self._base = replace(base, sampling=likeliest, profile=f"{base.profile}/beam")
        return self._requests()

    def advance(self, event: Event) -> Advance:
        """Keep the continuations of one beam; with the last beam of a step, take the step."""
        if isinstance(event, TokenEvent):
            drawn = event.logprobs[0] if event.logprobs else None
            pairs = () if drawn is None else zip(drawn.top_tokens, drawn.top_logprobs, strict=True)
            self._continuations[event.id] = tuple(pairs)
            return Advance()
        del self._open[event.id]
        if isinstance(event, FinishedEvent):
            self._usage = usage_of_all([self._usage, event.usage]) if self._usage else event.usage
        stops: Sequence[Stop] = ()
        if event.error is not None:
            stops = self.stop(event.error)
        elif event.id not in self._continuations:  # it was ended before it had its token
            stops = self.stop()
        if self._open:
            return Advance(stops=stops)
        if self._error is None and not self._aborted:
            self._search.step([self._continuations[core_id] for core_id in self._present])
            if not self._search.done:
                return Advance(submits=self._requests())
        return Advance(self._outputs(), ended=True)

    def start_deltas(self) -> list[Output]:
        self._late_deltas = True
        return []  # no text is certain before the end

    def _requests(self) -> list[CoreRequest]:
        beams = self._search.beams
        self._continuations = {}
        self._present = self.core_ids[: len(beams)]
        self._open = dict.fromkeys(self._present)
        prompt = self._base.prompt
        return [
            replace(self._base, id=core_id, prompt=(*prompt, *beam.tokens))
            for core_id, beam in zip(self._present, beams, strict=True)
        ]

    def _outputs(self) -> list[Output]:
        """The failure, or the result after its deltas, if the request streams."""
        usage = self._usage
        if usage is None or self._error is not None:
            return [Failure(self.request.id, self._error or EngineError("no text was made"), usage)]
        if self._aborted:
            choices = [self._choice(beam, FinishReason.ABORTED) for beam in self._search.beams[: self.request.n]]
        else:
            choices = [
                self._choice(each.beam, FinishReason.STOP if each.ended else FinishReason.LENGTH)
                for each in self._search.results[: self.request.n]
            ]
        deltas = late_deltas(self.request, choices) if self._late_deltas else []
        return [*deltas, GenerationResult.of(self.request.id, choices, usage)]

    def _choice(self, beam: Beam, reason: FinishReason) -> Choice:
        tokens = beam.tokens[:-1] if reason is FinishReason.STOP else beam.tokens
        mean = beam.logprob / len(beam.tokens) if beam.tokens else None
        return Choice(Detokenizer(self._vocabulary).push(tokens), tokens, reason, mean_logprob=mean)
