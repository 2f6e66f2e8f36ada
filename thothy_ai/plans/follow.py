"""`follow`: runs a job's plan to its judgement. Its calls go to an engine, and their outputs back to the plan.

    advance ──calls──▶ submit ──▶ engine       one step: its calls run side by side
       ▲                            │
       └─────────outputs────────────┘          until `advance` returns a judgement

The worker, `thothy ask` and `thothy eval` follow plans with it. They pass in what differs: where the kind's code runs
(`advance`), how a request reaches the engine (`submit`), and how to wait for the outputs of a step (`wait`). The
attempt's usage is in its `CallLog`, however the attempt ended. The caller handles lost engines, retries and records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from thothy_ai.engine.api import GenerationRequest, Usage
from thothy_ai.jobs.api.plan import Outputs
from thothy_ai.plans.advance import Judgement, PlannedJob, PlanStep, advance
from thothy_ai.plans.requests import VERIFY, RequestFactory, Translate
from thothy_ai.plans.running_call import EarlyRejection, RunningCall, total

if TYPE_CHECKING:  # at run time, only code that makes a client needs its module
    from thothy_ai.engine.serving.client import Generation

Submit = Callable[[GenerationRequest], Awaitable["Generation"]]
Advance = Callable[[PlannedJob, Sequence[Outputs], PlanStep | None], Awaitable[PlanStep | Judgement]]
Wait = Callable[[Sequence[RunningCall]], Awaitable[Outputs]]


class CallLog:
    """The calls of one attempt, in the order in which they were sent, and the outputs of the steps that have ended."""

    def __init__(self) -> None:
        self.sent: list[RunningCall] = []
        self.answered: list[Outputs] = []

    @property
    def usage(self) -> Usage:
        """The usage of all calls that have ended, however they ended."""
        return total(call.usage for call in self.sent)

    @property
    def verification_usage(self) -> Usage:
        """The part of the usage that is due to verification."""
        return total(call.usage for call in self.sent if call.call.step == VERIFY)

    @property
    def saved_tokens(self) -> int:
        """The unused tokens of calls that were stopped early."""
        return sum(call.saved_tokens for call in self.sent)

    @property
    def text(self) -> str:
        """All outputs of the steps that have ended, each on lines of its own."""
        return "\n".join(output.text for outputs in self.answered for output in outputs)


async def advance_here(
    job: PlannedJob,
    answered: Sequence[Outputs],
    last: PlanStep | None = None,  # noqa: ARG001 - the signature of Judges.advance
) -> PlanStep | Judgement:
    """`advance` in this process. Only for one job at a time: a kind's code may take long."""
    return advance(job, answered)


async def side_by_side(calls: Sequence[RunningCall]) -> Outputs:
    """Wait for the outputs of all calls; raise the first error that occurs in one of them."""
    return tuple(await asyncio.gather(*(call.output() for call in calls)))


async def follow(
    job: PlannedJob,
    requests: RequestFactory,
    submit: Submit,
    log: CallLog,
    *,
    advance: Advance = advance_here,
    early_rejection: EarlyRejection | None = None,
    before_step: Callable[[], None] = lambda: None,
    wait: Wait = side_by_side,
    translate: Translate | None = None,
) -> Judgement:
    """Follow the plan to its end. If a call fails, or the task is cancelled, the step's other calls are aborted.

    `before_step` is called before the calls of each step are sent, and can raise to end the attempt. With
    `early_rejection`, unfinished outputs that are certain to be rejected are stopped. Calls to OpenAI's API need
    `translate`.

    Raises `PlanError`, `EngineAbortedError`, a call's `EngineError`, and whatever the arguments raise.
    """
    last: PlanStep | None = None
    while isinstance(step := await advance(job, log.answered, last), PlanStep):
        before_step()
        first = len(log.sent)
        try:
            for number, call in enumerate(step.calls, first):
                translated = None
                if call.api is None or translate is None:
                    request = requests.request(call, number, step.kv_budget)
                else:
                    translated = await translate(call.api, requests.tenant)
                    request = requests.adopted(translated.request, call, number)
                log.sent.append(RunningCall(call, request, await submit(request), early_rejection, translated))
            log.answered.append(await wait(log.sent[first:]))
        except BaseException:
            await asyncio.gather(*(call.abort() for call in log.sent[first:]))
            raise
        last = step
    return step


def first_requests(job: PlannedJob, requests: RequestFactory) -> list[GenerationRequest]:
    """The requests that `follow` would send first; empty if the plan makes no call. Raises `PlanError`."""
    step = advance(job, ())
    if isinstance(step, Judgement):
        return []
    return [requests.request(call, number, step.kv_budget) for number, call in enumerate(step.calls)]
