"""`RequestFactory`: turns a plan's calls into requests to the engine, and the engine's results into outputs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, Message, SamplingParams
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.template_options import TemplateOption
from thothy_ai.jobs import Call, End, Output
from thothy_ai.jobs.api.plan import ApiBody

VERIFY = "verify"  # the step of a plan in which the model judges an artifact
TOO_LONG = Output("", End.PROMPT_TOO_LONG)  # for a call that the engine refused
EARLY_TOKENS = 40  # before the first early check of an output; smaller budgets are not worth one
_ENDS = {FinishReason.LENGTH: End.TOKEN_LIMIT, FinishReason.REPETITION: End.REPETITION}


class Translated(Protocol):
    """A request body of OpenAI's API, translated for the engine."""

    @property
    def request(self) -> GenerationRequest:
        """The request to the engine, without the circumstances of an attempt."""

    def answer(self, result: GenerationResult) -> Mapping[str, Any]:
        """The API's object for this result."""

    def refusal(self, error: EngineError) -> Exception:
        """The API's answer to the engine's refusal, as an error to raise."""


Translate = Callable[[ApiBody, str], Awaitable[Translated]]  # from a body and the tenant; raises the API's refusals


@dataclass(frozen=True, slots=True)
class RequestFactory:
    """Makes the requests of one attempt at a job, from what all its calls have in common.

    `key` names the attempt to the engine. `template_options` are added to those of each call. Calls use the `adapter`,
    except for verification: the base model, whose precision was measured, verifies what the adapter wrote. `can_budget`
    says of a KV budget whether the engine can serve it; calls are sent without one that it cannot.
    """

    key: str
    kind: str
    seed: int
    tenant: str
    priority: int = 0
    deadline: datetime | None = None
    booked: bool = False  # whether the usage belongs to a job, as in a worker
    stream: bool = False
    adapter: str = ""
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    can_budget: Callable[[int], bool] = lambda _: True

    def request(self, call: Call, number: int, kv_budget: int | None = None) -> GenerationRequest:
        """The request for the attempt's call with this number, counted from 0. Raises `InvalidRequestError`.

        Verification, which looks for single facts, always sees all of its prompt, and several texts share all of it.
        """
        wanted = call.sampling
        # Of several candidates, only the first could be checked while they are written.
        alone = (wanted.best_of or wanted.n) == 1
        keeps_all = not alone or call.step == VERIFY or call.pairs
        if kv_budget is not None and (keeps_all or not self.can_budget(kv_budget)):
            kv_budget = None
        is_watched = alone and (call.locale is not None or call.early is not None) and wanted.max_tokens > EARLY_TOKENS
        return GenerationRequest(
            id=f"{self.key}.{number}",
            messages=tuple(Message(message.role, message.content) for message in call.messages),
            sampling=SamplingParams(
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
                seed=call_seed(self.seed, number),
            ),
            schema=None if call.pairs else json.dumps(call.schema),
            profile=f"{self.kind}/{call.step}",
            salt=self.tenant,
            stream=self.stream,
            priority=self.priority,
            deadline=self.deadline.timestamp() if self.deadline is not None else None,
            booked=self.booked,
            report_after=EARLY_TOKENS if is_watched else 0,
            report_again=is_watched and call.early is not None,
            n=wanted.n,
            best_of=wanted.best_of,
            template_options={**call.template_options, **self.template_options},
            pairs=call.pairs,
            adapter="" if call.step == VERIFY else self.adapter,
            kv_budget=kv_budget,
        )

    def adopted(self, request: GenerationRequest, call: Call, number: int) -> GenerationRequest:
        """A request that was translated from an API body, completed with the attempt's circumstances."""
        seed = request.sampling.seed
        return replace(
            request,
            id=f"{self.key}.{number}",
            sampling=replace(request.sampling, seed=call_seed(self.seed, number) if seed is None else seed),
            profile=f"{self.kind}/{call.step}",
            salt=self.tenant,
            stream=self.stream,
            priority=self.priority,
            deadline=self.deadline.timestamp() if self.deadline is not None else None,
            booked=self.booked,
            adapter=self.adapter,
            template_options={**request.template_options, **self.template_options},
        )


def call_seed(seed: int, number: int) -> int:
    """The seed of an attempt's call, 63 bits. The first call has the attempt's own seed."""
    return seed if number == 0 else int.from_bytes(sha256(f"{seed}.{number}".encode()).digest()[:8]) >> 1


def output_of(result: GenerationResult) -> Output:
    """A result that was not aborted, as an output for the plan."""
    first, *others = (
        Output(choice.text, _ENDS.get(choice.finish_reason, End.COMPLETE), choice.mean_logprob)
        for choice in result.choices
    )
    return replace(first, others=tuple(others))
