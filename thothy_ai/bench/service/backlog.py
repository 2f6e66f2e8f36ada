"""The jobs of `thothy bench`: a synthetic backlog, as a producer's requests or a worker's requests to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.bench.requests import Backlog
    from thothy_ai.engine.api import EngineInfo, GenerationRequest
    from thothy_ai.jobs import Request

TENANT = "bench"


def make_jobs(wanted: Backlog) -> list[Request]:
    """The backlog's jobs. Kinds of `THOTHY_KINDS` may be named. Raises `InvalidRequestError`."""
    from thothy_ai.demo.backlog import backlog
    from thothy_ai.engine.api.errors import InvalidRequestError
    from thothy_ai.jobs import registry
    from thothy_ai.settings import Settings

    try:
        registry.load_extra(Settings.load().kinds)
        return backlog(wanted.jobs, wanted.seed, wanted.kind)
    except registry.KindError as error:
        raise InvalidRequestError(str(error)) from error


def as_requests(
    jobs: Sequence[Request], seeds: Sequence[int] | None = None, engine: EngineInfo | None = None
) -> list[GenerationRequest]:
    """The requests that a worker would first send for these jobs to this engine, by default one with a large model.

    `seeds` are those of the jobs' attempts, by default the jobs' numbers.
    """
    from thothy_ai.jobs import Context, registry
    from thothy_ai.plans.advance import PlannedJob
    from thothy_ai.plans.follow import first_requests
    from thothy_ai.plans.requests import RequestFactory
    from thothy_ai.settings import Settings

    settings = Settings.load()
    context = Context() if engine is None else Context(engine.max_context, engine.parameters)
    requests: list[GenerationRequest] = []
    for job, seed in zip(jobs, range(len(jobs)) if seeds is None else seeds, strict=True):
        kind = registry.kind_of(job).name
        body, budget = job.model_dump(mode="json"), settings.kv_budget_of(kind)
        factory = RequestFactory(
            str(seed),
            kind,
            seed,
            TENANT,
            can_budget=lambda tokens: engine is None or not engine.refusal_of_budget(tokens),
        )
        requests += first_requests(PlannedJob(kind, body, context, kv_budget=budget), factory)
    return requests


def engine_requests(wanted: Backlog) -> list[GenerationRequest]:
    """The backlog as requests to an engine, after a house prompt if it has one. Raises `InvalidRequestError`."""
    from thothy_ai.demo.backlog import house_prompt
    from thothy_ai.engine.api import Message

    requests, house = as_requests(make_jobs(wanted)), house_prompt(wanted.house_words)
    if not house:
        return requests
    behind = []
    for request in requests:
        first, *rest = request.messages
        # Some chat templates accept only one system message.
        messages = (
            (Message("system", f"{house}\n\n{first.content}"), *rest)
            if first.role == "system"
            else (Message("system", house), *request.messages)
        )
        behind.append(replace(request, messages=messages))
    return behind
