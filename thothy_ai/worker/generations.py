"""What a job asks of the engine, and what its output is worth: the parts of an attempt that need no queue.

A worker uses them for each attempt, and `thothy ask` for a request that is in no queue: both ask and judge alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, Message, SamplingParams
from thothy_ai.jobs import Request, Sampling, Verdict, registry
from thothy_ai.jobs.registry import AnyKind


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job whose kind and request are known, and what to ask of the engine."""

    kind: AnyKind
    request: Request
    generation: GenerationRequest


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on an output, and the requests of the jobs that an accepted artifact asks for."""

    verdict: Verdict
    follow_ups: tuple[Request, ...] = ()


def prepare(
    kind_name: str,
    request: Any,
    *,
    key: str,
    seed: int,
    tenant: str,
    stream: bool = False,
    priority: int = 0,
    deadline: datetime | None = None,
) -> Prepared:
    """What the job with this request, as plain JSON values, asks of the engine; `key` names the attempt there.

    Raises `UnknownKindError`, `ValidationError`, `InvalidRequestError`.
    """
    kind = registry.find(kind_name)
    parsed = kind.request.model_validate(request, extra="ignore")  # a newer producer may know more fields
    generation = GenerationRequest(
        id=key,
        messages=tuple(Message(message.role, message.content) for message in kind.prompt(parsed)),
        sampling=_sampling(kind.sampling(parsed), seed),
        schema=json.dumps(kind.schema(parsed)),
        profile=kind.name,
        salt=tenant,
        stream=stream,
        priority=priority,
        deadline=deadline.timestamp() if deadline is not None else None,
    )
    return Prepared(kind, parsed, generation)


def judge(prepared: Prepared, result: GenerationResult) -> Judgement:
    """Judge an output. CPU-bound. Raises whatever the kind raises, which may be third-party code."""
    kind, request = prepared.kind, prepared.request
    verdict = kind.judge(request, result.text, truncated=result.finish_reason is FinishReason.LENGTH)
    return Judgement(verdict, kind.follow_ups(request, verdict.artifact) if verdict.accepted else ())


def _sampling(wanted: Sampling, seed: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repetition_penalty=wanted.repetition_penalty,
        seed=seed,
    )
