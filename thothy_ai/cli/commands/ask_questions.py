"""What `thothy ask` asks: a job of some kind, or a plain prompt; and an attempt at it, with its verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from thothy_ai.cli.commands.ask_engine import Answer
from thothy_ai.engine.api import MAX_PRIORITY, Choice, FinishReason, GenerationRequest, Message, SamplingParams, Usage
from thothy_ai.engine.api.template_options import TemplateOption
from thothy_ai.worker.finish import total

if TYPE_CHECKING:
    from thothy_ai.jobs import Call, Context, Previous
    from thothy_ai.jobs.registry import AnyKind
    from thothy_ai.plans.plans import Judgement
    from thothy_ai.settings import Settings

PRIORITY = MAX_PRIORITY  # before every job: a person waits for the answer

Steps = Sequence[tuple[Answer, ...]]  # the answers to a plan's calls so far


@dataclass(frozen=True, slots=True)
class Attempt:
    """All answers of one attempt, and `seconds` from its beginning to its end. A plain prompt has no judgement."""

    seed: int
    seconds: float
    answers: tuple[Answer, ...]
    judgement: Judgement | None = None

    @property
    def accepted(self) -> bool:
        """Whether the output can be used; that of a plain prompt can."""
        return self.judgement is None or self.judgement.accepted

    @property
    def retryable(self) -> bool:
        """Whether a worker would try again."""
        return self.judgement is not None and self.judgement.retryable

    @property
    def usage(self) -> Usage:
        """What all of its calls took."""
        return total(answer.usage for answer in self.answers)

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second of waiting."""
        return self.usage.output_tokens / self.seconds if self.seconds > 0 else None

    @property
    def text(self) -> str:
        """All outputs, each on lines of its own."""
        return "\n".join(answer.output.text for answer in self.answers)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the last call ended; None if the engine refused it."""
        return result.finish_reason if self.answers and (result := self.answers[-1].result) else None

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The texts of the last call."""
        return result.choices if self.answers and (result := self.answers[-1].result) else ()

    def previous(self) -> Previous | None:
        """What the next attempt may learn of this one."""
        from thothy_ai.jobs import Previous

        judged = self.judgement
        return Previous(judged.reason, judged.detail, judged.body) if judged and judged.reason else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys."""
        judged, usage = self.judgement, self.usage
        return {
            "seed": self.seed,
            "verdict": None if judged is None else "accepted" if judged.accepted else "rejected",
            "reason": judged and judged.reason,
            "detail": (judged and judged.detail) or None,
            "artifact": judged and judged.body,
            "follow_ups": [wanted.kind for wanted in judged.follow_ups] if judged else [],
            "text": self.text,
            "choices": [_choice_json(choice) for choice in self.choices],
            "calls": len(self.answers),
            "finish_reason": self.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "compute_seconds": usage.compute_seconds,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
        }


def _choice_json(choice: Choice) -> dict[str, Any]:
    tokens = zip(choice.token_ids, choice.logprobs, strict=True) if choice.logprobs else ()
    return {
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "mean_logprob": choice.mean_logprob,
        "logprobs": [{"token": token, **asdict(drawn)} if drawn else {"token": token} for token, drawn in tokens],
    }


class Question(Protocol):
    """Something to ask, with any seed."""

    @property
    def kind(self) -> str | None:
        """The kind's name; None for a plain prompt."""

    def next(self, seed: int, context: Context, steps: Steps) -> tuple[GenerationRequest, ...] | Judgement | None:
        """What to send to the engine after these answers; at the end, the judgement, or None if nothing judges it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A plain prompt, with an optional system message."""

    prompt: str
    system: str | None
    max_tokens: int
    temperature: float
    n: int = 1
    logprobs: int | None = None
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    kind: None = None

    def next(self, seed: int, context: Context, steps: Steps) -> tuple[GenerationRequest, ...] | None:  # noqa: ARG002
        """One or two messages; the engine applies the model's chat template."""
        if steps:
            return None
        messages = (*([Message("system", self.system)] if self.system else []), Message("user", self.prompt))
        sampling = SamplingParams(self.max_tokens, self.temperature, seed=seed, logprobs=self.logprobs)
        request = GenerationRequest(
            _key(),
            messages,
            sampling=sampling,
            stream=True,
            priority=PRIORITY,
            n=self.n,
            template_options=self.template_options,
        )
        return (request,)


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """A job's request: its plan is followed as a worker does."""

    kind: str
    tenant: str
    body: Any = field(repr=False)  # the request as JSON values, as the queue would keep it
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)  # beside those of the kind's calls

    @classmethod
    def of(
        cls,
        kind: AnyKind,
        values: Mapping[str, Any],
        settings: Settings,
        options: Mapping[str, TemplateOption] | None = None,
    ) -> JobQuestion:
        """From the values of the request's fields. Raises `InvalidJobError`."""
        from thothy_ai.producer.drafts import DEFAULT, draft, parse_request

        drafted = draft(parse_request(kind.name, values), DEFAULT, settings, datetime.now(UTC))
        return cls(kind.name, settings.tenant, json.loads(drafted.request), options or {})

    def next(self, seed: int, context: Context, steps: Steps) -> tuple[GenerationRequest, ...] | Judgement:
        """The plan's next calls, or its judgement. Raises `PlanError`."""
        from thothy_ai.plans.generations import Asker
        from thothy_ai.plans.plans import Judgement, PlannedJob, advance

        answered = [tuple(answer.output for answer in answers) for answers in steps]
        step = advance(PlannedJob(self.kind, self.body, context), answered)
        if isinstance(step, Judgement):
            return step
        asker = Asker(_key(), self.kind, seed, self.tenant, PRIORITY, stream=True)
        first = sum(map(len, steps))
        return tuple(asker.request(self._with_options(call), number) for number, call in enumerate(step.calls, first))

    def _with_options(self, call: Call) -> Call:
        return replace(call, template_options={**call.template_options, **self.template_options})


def _key() -> str:
    return f"ask-{uuid4()}"  # no attempt's key: its usage belongs to no job
