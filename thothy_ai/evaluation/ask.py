"""The prompts of `thothy ask`, a job of some kind or plain text, and attempts at them with their judgements."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from thothy_ai.engine.api import (
    MAX_PRIORITY,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    Usage,
)
from thothy_ai.engine.api.errors import PromptTooLongError
from thothy_ai.engine.api.template_options import TemplateOption
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.http.openai.translation import translated
from thothy_ai.jobs import Context, RejectionReason
from thothy_ai.jobs.api.plan import Output, Outputs
from thothy_ai.jobs.registry import AnyKind
from thothy_ai.plans.advance import Judgement, PlannedJob
from thothy_ai.plans.follow import CallLog, follow
from thothy_ai.plans.requests import RequestFactory
from thothy_ai.plans.running_call import RunningCall, abort, first_text, total
from thothy_ai.producer.drafts import parse_request
from thothy_ai.queue.canonical import canonical

PRIORITY = MAX_PRIORITY  # before every job, because a person waits for the answer


class Screen(Protocol):
    """Shows outputs as they are written."""

    def output(self) -> None:
        """Begin an output, on a new line."""

    def text(self, text: str) -> None:
        """Show the next piece of the output."""


@dataclass(frozen=True, slots=True)
class AskAttempt:
    """The results of all calls of one attempt; None for a call that the engine refused because of a too long prompt.

    `seconds` is the attempt's duration. A plain prompt has no judgement.
    """

    seed: int
    seconds: float
    results: tuple[GenerationResult | None, ...]
    judgement: Judgement | None = None

    @property
    def accepted(self) -> bool:
        """Whether the output can be used, which is always so for a plain prompt."""
        return self.judgement is None or self.judgement.accepted

    @property
    def retryable(self) -> bool:
        """Whether a worker would try again."""
        return self.judgement is not None and self.judgement.retryable

    @property
    def usage(self) -> Usage:
        """The usage of all calls together."""
        return total(result.usage for result in self.results if result is not None)

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second of waiting."""
        return self.usage.output_tokens / self.seconds if self.seconds > 0 else None

    @property
    def last(self) -> GenerationResult | None:
        """The result of the last call; None if the engine refused it."""
        return self.results[-1] if self.results else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys."""
        judged, usage, last = self.judgement, self.usage, self.last
        choices = []
        for choice in last.choices if last is not None else ():
            tokens = zip(choice.token_ids, choice.logprobs, strict=True) if choice.logprobs else ()
            logprobs = [{"token": token, **(asdict(drawn) if drawn else {})} for token, drawn in tokens]
            choices.append(
                {
                    "text": choice.text,
                    "finish_reason": choice.finish_reason,
                    "mean_logprob": choice.mean_logprob,
                    "logprobs": logprobs,
                }
            )
        return {
            "seed": self.seed,
            "verdict": None if judged is None else "accepted" if judged.accepted else "rejected",
            "reason": judged and judged.reason,
            "detail": (judged and judged.detail) or None,
            "artifact": judged and judged.body,
            "follow_ups": [wanted.kind for wanted in judged.follow_ups] if judged else [],
            "text": "\n".join(result.text if result is not None else "" for result in self.results),
            "choices": choices,
            "calls": len(self.results),
            "finish_reason": last and last.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "compute_seconds": usage.compute_seconds,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
        }


class Prompt(Protocol):
    """A prompt that can be asked repeatedly, with different seeds."""

    @property
    def kind(self) -> str | None:
        """The kind's name; None for a plain prompt."""

    async def attempt(self, client: EngineClient, seed: int, context: Context, screen: Screen) -> AskAttempt:
        """Ask once, and show the outputs. If this is interrupted, the calls in flight are aborted.

        Raises `EngineError`, `PlanError`.
        """


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A plain prompt, with an optional system message. The engine applies the model's chat template."""

    prompt: str
    system: str | None
    max_tokens: int
    temperature: float
    n: int = 1
    logprobs: int | None = None
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    kind: None = None

    async def attempt(self, client: EngineClient, seed: int, context: Context, screen: Screen) -> AskAttempt:  # noqa: ARG002 - for plans
        began = time.monotonic()
        generation = await client.submit(
            GenerationRequest(
                _key(),
                (*([Message("system", self.system)] if self.system else []), Message("user", self.prompt)),
                sampling=SamplingParams(self.max_tokens, self.temperature, seed=seed, logprobs=self.logprobs),
                stream=True,
                priority=PRIORITY,
                n=self.n,
                template_options=self.template_options,
            )
        )
        try:
            screen.output()
            async for text in first_text(generation):
                screen.text(text)
            result = await generation.result()
        except BaseException:
            await abort(generation)
            raise
        for other in result.others:
            screen.output()
            screen.text(other.text)
        return AskAttempt(seed, time.monotonic() - began, (result,))


@dataclass(frozen=True, slots=True)
class JobPrompt:
    """A job's request. Its plan is followed as in a worker, except that outputs are not stopped early."""

    kind: str
    tenant: str
    body: Any = field(repr=False)  # the request as JSON values, as the queue would keep it
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)  # in addition to those of the calls
    kv_budget: int | None = None  # the installation's; None: the kind's own

    async def attempt(self, client: EngineClient, seed: int, context: Context, screen: Screen) -> AskAttempt:
        began, log = time.monotonic(), CallLog()
        info = await client.info()
        requests = RequestFactory(
            _key(),
            self.kind,
            seed,
            self.tenant,
            PRIORITY,
            stream=True,
            template_options=self.template_options,
            can_budget=lambda tokens: not info.refusal_of_budget(tokens),
        )
        job = PlannedJob(self.kind, self.body, context, kv_budget=self.kv_budget)
        judgement = await follow(
            job,
            requests,
            client.submit,
            log,
            wait=partial(_one_by_one, screen),
            translate=lambda body, tenant: translated(body, tenant, info, client.vocabulary),
        )
        refused = [call.error for call in log.sent if call.error is not None]
        if refused and judgement.reason is RejectionReason.PROMPT_TOO_LONG:
            raise refused[0]
        return AskAttempt(seed, time.monotonic() - began, tuple(call.result for call in log.sent), judgement)


def request_body(kind: AnyKind, values: Mapping[str, Any]) -> Any:
    """A request as JSON values with defaults, as the queue would keep it. Raises `InvalidJobError`."""
    return json.loads(canonical(parse_request(kind.name, values)).request)


async def _one_by_one(screen: Screen, calls: Sequence[RunningCall]) -> Outputs:
    """The outputs of calls that run at once. Each is shown as it is written, once the outputs before it have ended."""
    outputs: list[Output] = []
    for call in calls:
        screen.output()
        try:
            async for text in call.texts():
                screen.text(text)
        except PromptTooLongError:
            pass  # `call.output` returns it as an output, for the plan
        outputs.append(await call.output())
        for other in outputs[-1].others:
            screen.output()
            screen.text(other.text)
    return tuple(outputs)


def _key() -> str:
    return f"ask-{uuid4()}"  # not an attempt's key, since the usage belongs to no job
