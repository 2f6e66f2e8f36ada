"""What `thothy ask` asks: a job of some kind, or a plain prompt; and an attempt at it, with its verdict."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from thothy_ai.cli.ask_engine import Answer
from thothy_ai.engine.api import MAX_PRIORITY, FinishReason, GenerationRequest, Message, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thothy_ai.jobs import Verdict
    from thothy_ai.jobs.registry import AnyKind
    from thothy_ai.settings import Settings

PRIORITY = MAX_PRIORITY  # before every job: a person waits for the answer


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer. `verdict` is None for a plain prompt, and where the kind itself failed: `kind_error` says how."""

    seed: int
    answer: Answer
    verdict: Verdict | None = None
    kind_error: str | None = None
    follow_ups: tuple[str, ...] = ()  # kinds

    @property
    def accepted(self) -> bool:
        """Whether the output can be used; that of a plain prompt can."""
        return self.kind_error is None and (self.verdict is None or self.verdict.accepted)

    @property
    def retryable(self) -> bool:
        """Whether a worker would try again with another seed."""
        reason = self.verdict.reason if self.verdict else None
        return not self.accepted and (reason is None or reason.retryable)

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys."""
        result, verdict = self.answer.result, self.verdict
        return {
            "seed": self.seed,
            "verdict": None if verdict is None else "accepted" if verdict.accepted else "rejected",
            "reason": "kind_error" if self.kind_error else verdict and verdict.reason,
            "detail": self.kind_error or (verdict and verdict.detail) or None,
            "artifact": verdict.artifact.model_dump(mode="json") if verdict and verdict.artifact else None,
            "follow_ups": list(self.follow_ups),
            "text": result.text,
            "finish_reason": result.finish_reason,
            "prompt_tokens": result.usage.prompt_tokens,
            "cached_tokens": result.usage.cached_tokens,
            "output_tokens": result.usage.output_tokens,
            "compute_seconds": result.usage.compute_seconds,
            "seconds": self.answer.seconds,
            "tokens_per_second": self.answer.tokens_per_second,
        }


class Question(Protocol):
    """Something to ask, with any seed."""

    @property
    def kind(self) -> str | None:
        """The kind's name; None for a plain prompt."""

    def request(self, seed: int) -> GenerationRequest:
        """What to send to the engine."""

    def judged(self, seed: int, answer: Answer) -> Attempt:
        """The attempt with its verdict."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A plain prompt, with an optional system message."""

    prompt: str
    system: str | None
    max_tokens: int
    temperature: float
    kind: None = None

    def request(self, seed: int) -> GenerationRequest:
        """One or two messages; the engine applies the model's chat template."""
        messages = (*([Message("system", self.system)] if self.system else []), Message("user", self.prompt))
        sampling = SamplingParams(max_tokens=self.max_tokens, temperature=self.temperature, seed=seed)
        return GenerationRequest(_key(), messages, sampling=sampling, stream=True, priority=PRIORITY)

    def judged(self, seed: int, answer: Answer) -> Attempt:
        """Nothing judges it."""
        return Attempt(seed, answer)


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """A job's request: prepared and judged by what a worker uses."""

    kind: str
    tenant: str
    body: Any = field(repr=False)  # the request as JSON values, as the queue would keep it

    @classmethod
    def of(cls, kind: AnyKind, values: Mapping[str, Any], settings: Settings) -> JobQuestion:
        """From the values of the request's fields. Raises `InvalidJobError`."""
        from thothy_ai.queue.drafts import DEFAULT, draft, parse_request

        drafted = draft(parse_request(kind.name, values), DEFAULT, settings, datetime.now(UTC))
        return cls(kind.name, settings.tenant, json.loads(drafted.request))

    def request(self, seed: int) -> GenerationRequest:
        """The prompt, schema and sampling of the kind."""
        from thothy_ai.worker.generations import prepare

        prepared = prepare(
            self.kind, self.body, key=_key(), seed=seed, tenant=self.tenant, stream=True, priority=PRIORITY
        )
        return prepared.generation

    def judged(self, seed: int, answer: Answer) -> Attempt:
        """The validators' verdict, and the follow-up jobs that a worker would queue."""
        from thothy_ai.jobs import registry
        from thothy_ai.worker.generations import judge, prepare

        try:
            judgement = judge(prepare(self.kind, self.body, key=_key(), seed=seed, tenant=self.tenant), answer.result)
            follow_ups = tuple(registry.kind_of(request).name for request in judgement.follow_ups)
            return Attempt(seed, answer, judgement.verdict, follow_ups=follow_ups)
        except Exception as error:  # noqa: BLE001 - a kind may be third-party code
            return Attempt(seed, answer, kind_error=repr(error))


def truncated(attempt: Attempt) -> bool:
    """Whether the output stopped at its token budget."""
    return attempt.answer.result.finish_reason is FinishReason.LENGTH


def _key() -> str:
    return f"ask-{uuid4()}"  # no attempt's key: its usage belongs to no job
