"""Runs the cases of `thothy eval` on an engine, several at once. Each case follows its plan as in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from thothy_ai.embedded.endpoint import Endpoint
from thothy_ai.engine.api import EngineInfo
from thothy_ai.evaluation.connection import connected
from thothy_ai.http.openai.translation import translated
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.plans.advance import Judgement, PlannedJob
from thothy_ai.plans.context import context_of
from thothy_ai.plans.follow import CallLog, follow
from thothy_ai.plans.judges import Judges
from thothy_ai.plans.requests import RequestFactory
from thothy_ai.settings import Settings

AT_ONCE = 16  # cases in flight
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """The requests to run on each engine: JSON values of one kind, under `policy` and with `kv_budget`, or else the
    kind's own.
    """

    kind: str
    bodies: tuple[Body, ...]
    attempts: int
    seed: int
    policy: Policy | None = None
    kv_budget: int | None = None


@dataclass(frozen=True, slots=True)
class CaseAttempt:
    """The judgement of an attempt at a case, and its calls."""

    judgement: Judgement
    calls: CallLog


async def run(
    settings: Settings, endpoint: Endpoint, trial: Trial, on_ended: Callable[[], None]
) -> tuple[EngineInfo, list[list[CaseAttempt]]]:
    """The engine, and the attempts at each request in order. `on_ended` is called once per request.

    If a request fails, the others are aborted. Raises `EngineError`, `PlanError`.
    """
    places = asyncio.Semaphore(AT_ONCE)
    judges = Judges(settings.kinds, settings.judge_seconds, settings.judges, settings.gates_as_findings)

    async def attempts(body: Body) -> list[CaseAttempt]:
        """Retry as a worker does: with the next seed, while the reason of the rejection allows another attempt."""
        made: list[CaseAttempt] = []
        async with places:
            while not made or (made[-1].judgement.retryable and len(made) < trial.attempts):
                previous = made[-1].judgement.previous if made else None
                context = context_of(info, previous)
                job = PlannedJob(trial.kind, body, context, trial.policy, trial.kv_budget)
                # The priority is that of ordinary jobs.
                requests, log = RequestFactory(f"eval-{uuid4()}", trial.kind, trial.seed + len(made), "eval"), CallLog()
                judgement = await follow(
                    job,
                    requests,
                    client.submit,
                    log,
                    advance=judges.advance,
                    early_rejection=judges.early_rejection,
                    translate=lambda body, tenant: translated(body, tenant, info, client.vocabulary),
                )
                made.append(CaseAttempt(judgement, log))
        on_ended()
        return made

    try:
        async with connected(endpoint) as (client, info):
            tasks = [asyncio.create_task(attempts(body)) for body in trial.bodies]
            try:
                return info, await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await judges.close()
