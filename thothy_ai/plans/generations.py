"""From a plan's calls to requests to the engine, and from the engine's results to the plan's outputs.

A worker uses them for each attempt, and `thothy ask` for a request that is in no queue: both ask alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256

from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, Message, SamplingParams
from thothy_ai.jobs import Call, End, Output, Sampling

TOO_LONG = Output("", End.PROMPT_TOO_LONG)  # of a call that the engine refused
EARLY_TOKENS = 40  # after which an output is first looked at; one with a smaller budget is not worth it
_ENDS = {FinishReason.LENGTH: End.TOKEN_LIMIT, FinishReason.REPETITION: End.REPETITION}


@dataclass(frozen=True, slots=True)
class Asker:
    """What all calls of one attempt at a job have in common; `key` names the attempt to the engine."""

    key: str
    kind: str
    seed: int
    tenant: str
    priority: int = 0
    deadline: datetime | None = None
    stream: bool = False

    def request(self, call: Call, number: int) -> GenerationRequest:
        """The attempt's call with this number, counted from 0. Raises `InvalidRequestError`."""
        return GenerationRequest(
            id=f"{self.key}.{number}",
            messages=tuple(Message(message.role, message.content) for message in call.messages),
            sampling=_sampling(call.sampling, call_seed(self.seed, number)),
            schema=json.dumps(call.schema),
            profile=f"{self.kind}/{call.step}",
            salt=self.tenant,
            stream=self.stream,
            priority=self.priority,
            deadline=self.deadline.timestamp() if self.deadline is not None else None,
            report_after=EARLY_TOKENS if _is_watched(call) else 0,
            report_again=_is_watched(call) and call.early is not None,
            n=call.sampling.n,
            best_of=call.sampling.best_of,
            template_options=call.template_options,
        )


def call_seed(seed: int, number: int) -> int:
    """The seed of an attempt's call: 63 bits; the attempt's own for the first call."""
    return seed if number == 0 else int.from_bytes(sha256(f"{seed}.{number}".encode()).digest()[:8]) >> 1


def _is_watched(call: Call) -> bool:
    """Not one for several candidates, of which only the first would be seen."""
    alone = (call.sampling.best_of or call.sampling.n) == 1
    return alone and (call.locale is not None or call.early is not None) and call.sampling.max_tokens > EARLY_TOKENS


def output_of(result: GenerationResult) -> Output:
    """What a plan learns of a result that was not aborted."""
    first, *others = (
        Output(choice.text, _ENDS.get(choice.finish_reason, End.COMPLETE), choice.mean_logprob)
        for choice in result.choices
    )
    return replace(first, others=tuple(others))


def _sampling(wanted: Sampling, seed: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repetition_penalty=wanted.repetition_penalty,
        frequency_penalty=wanted.frequency_penalty,
        presence_penalty=wanted.presence_penalty,
        min_tokens=wanted.min_tokens,
        logprobs=0 if wanted.mean_logprob else None,
        seed=seed,
    )
