"""Runs the cases of `thothy eval` on an engine, several side by side: each follows its plan as a worker does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from thothy_ai.cli.commands.ask_engine import connected
from thothy_ai.cli.views.tables import console
from thothy_ai.jobs import Context, Previous
from thothy_ai.plans.generations import Asker, call_seed
from thothy_ai.plans.judges import Judges
from thothy_ai.plans.plans import Judgement, PlannedJob, Step
from thothy_ai.worker.calls import REVIEW
from thothy_ai.worker.finish import NO_ENGINE_USAGE, total
from thothy_ai.worker.running_call import RunningCall

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.engine.api import EngineInfo, Usage
    from thothy_ai.engine.serving.client import EngineClient
    from thothy_ai.jobs.api.plan import Calls, Outputs
    from thothy_ai.settings import Settings

AT_ONCE = 16  # cases in flight
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run on each engine: requests of one kind, as JSON values."""

    kind: str
    bodies: tuple[Body, ...]
    attempts: int
    seed: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt was judged, its outputs, and what all of its calls used."""

    judgement: Judgement
    outputs: Outputs
    usage: Usage
    reviewing: Usage = NO_ENGINE_USAGE  # of that, by calls that review
    saved_tokens: int = 0  # by early stops

    @property
    def text(self) -> str:
        """All outputs, each on lines of its own."""
        return "\n".join(output.text for output in self.outputs)

    def previous(self) -> Previous | None:
        """What the next attempt may learn of this one."""
        judged = self.judgement
        return Previous(judged.reason, judged.detail, judged.body) if judged.reason is not None else None


class _Runner:
    """Runs requests of one kind on one engine, with the priority of ordinary jobs."""

    def __init__(self, client: EngineClient, info: EngineInfo, judges: Judges, trial: Trial) -> None:
        self.info = info
        self._client = client
        self._judges = judges
        self._trial = trial
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run_all(self, on_ended: Callable[[], None]) -> list[list[Attempt]]:
        """The attempts at each request, in the requests' order. If one fails, the others are aborted."""
        tasks = [asyncio.create_task(self._run(body, on_ended)) for body in self._trial.bodies]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, body: Body, on_ended: Callable[[], None]) -> list[Attempt]:
        """Try as a worker does: with the next seed while the output is rejected for a reason that allows it."""
        made: list[Attempt] = []
        async with self._places:
            while not made or (made[-1].judgement.retryable and len(made) < self._trial.attempts):
                previous = made[-1].previous() if made else None
                made.append(await self._attempt(body, self._trial.seed + len(made), previous))
        on_ended()
        return made

    async def _attempt(self, body: Body, seed: int, previous: Previous | None) -> Attempt:
        job = PlannedJob(self._trial.kind, body, Context(self.info.max_context, self.info.parameters, previous))
        asker = Asker(f"eval-{uuid4()}", self._trial.kind, seed, "eval")
        made: list[RunningCall] = []
        answered: list[Outputs] = []
        last = None
        while isinstance(step := await self._judges.advance(job, answered, last), Step):
            answered.append(await self._outputs(step.calls, asker, made))
            last = step
        reviewing = total(call.usage for call in made if call.call.step == REVIEW)
        outputs = tuple(chain.from_iterable(answered))
        saved = sum(call.saved_tokens for call in made)
        return Attempt(step, outputs, total(call.usage for call in made), reviewing, saved)

    async def _outputs(self, calls: Calls, asker: Asker, made: list[RunningCall]) -> Outputs:
        """Of one step, whose calls are added to `made` as they are sent. If one fails, all are aborted."""
        first = len(made)
        try:
            for number, call in enumerate(calls, first):
                generation = await self._client.submit(asker.request(call, number))
                made.append(RunningCall(call, call_seed(asker.seed, number), generation))
            return tuple(await asyncio.gather(*(call.output(self._judges.early_rejection) for call in made[first:])))
        except BaseException:
            await asyncio.gather(*(call.abort() for call in made[first:]))
            raise


@asynccontextmanager
async def _runner(settings: Settings, endpoint: Endpoint, trial: Trial) -> AsyncIterator[_Runner]:
    """A runner on this engine, with processes that run the kind's code."""
    judges = Judges(settings.kinds, settings.judge_seconds, settings.judges)
    try:
        async with connected(endpoint) as (client, info):
            yield _Runner(client, info, judges, trial)
    finally:
        await judges.close()


def run(settings: Settings, endpoint: Endpoint, trial: Trial) -> tuple[EngineInfo, list[list[Attempt]]]:
    """Which engine it is, and the attempts at each request."""
    return asyncio.run(_attempts(settings, endpoint, trial))


async def _attempts(settings: Settings, endpoint: Endpoint, trial: Trial) -> tuple[EngineInfo, list[list[Attempt]]]:
    async with _runner(settings, endpoint, trial) as runner:
        return runner.info, await runner.run_all(_counter(len(trial.bodies)))


def _counter(total: int) -> Callable[[], None]:
    """Counts ended cases on standard error, if that is a terminal."""
    screen = console(stderr=True)
    ended = 0

    def one_more() -> None:
        nonlocal ended
        ended += 1
        if screen.is_terminal:
            screen.print(f"{ended} of {total}", end="\r" if ended < total else "\n")

    return one_more
