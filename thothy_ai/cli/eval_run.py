"""Runs the cases of `thothy eval` on an engine, several side by side: each follows its plan as a worker does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from thothy_ai.cli.ask_engine import Answer, ask, connected
from thothy_ai.cli.ask_questions import Attempt
from thothy_ai.jobs import Context, Previous
from thothy_ai.worker.generations import Asker
from thothy_ai.worker.judges import Judges
from thothy_ai.worker.plans import PlannedJob, Step

if TYPE_CHECKING:
    from thothy_ai.embedded.endpoint import Endpoint
    from thothy_ai.engine.api import EngineInfo
    from thothy_ai.engine.client import EngineClient
    from thothy_ai.jobs.plan import Outputs
    from thothy_ai.settings import Settings

AT_ONCE = 16  # cases in flight
Body = Mapping[str, Any]


class _Silent:
    """Shows nothing."""

    def output(self) -> None:
        """An output begins."""

    def text(self, text: str) -> None:
        """A piece of it."""


class Runner:
    """Runs requests of one kind on one engine. The engine's other jobs go first: nobody waits for an evaluation."""

    def __init__(
        self, client: EngineClient, info: EngineInfo, judges: Judges, kind: str, attempts: int, seed: int
    ) -> None:
        self.info = info
        self._client = client
        self._judges = judges
        self._kind = kind
        self._attempts = attempts
        self._seed = seed
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run_all(self, bodies: Sequence[Body], on_ended: Callable[[], None]) -> list[list[Attempt]]:
        """The attempts at each request, in the requests' order. If one fails, the others are aborted."""
        tasks = [asyncio.create_task(self._run(body, on_ended)) for body in bodies]
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
            while not made or (made[-1].retryable and len(made) < self._attempts):
                previous = made[-1].previous() if made else None
                made.append(await self._attempt(body, self._seed + len(made), previous))
        on_ended()
        return made

    async def _attempt(self, body: Body, seed: int, previous: Previous | None) -> Attempt:
        job = PlannedJob(self._kind, body, Context(self.info.max_context, self.info.parameters, previous))
        asker = Asker(f"eval-{uuid4()}", self._kind, seed, "eval")
        answers: list[Answer] = []
        answered: list[Outputs] = []
        last, began = None, time.monotonic()
        while isinstance(step := await self._judges.advance(job, answered, last), Step):
            requests = [asker.request(call, number) for number, call in enumerate(step.calls, len(answers))]
            got = await ask(self._client, requests, _Silent())
            answers += got
            answered.append(tuple(answer.output for answer in got))
            last = step
        return Attempt(seed, time.monotonic() - began, tuple(answers), step)


@asynccontextmanager
async def runner(settings: Settings, endpoint: Endpoint, kind: str, attempts: int, seed: int) -> AsyncIterator[Runner]:
    """A runner on this engine, with processes that run the kind's code."""
    judges = Judges(settings.kinds, settings.judge_seconds, settings.judges)
    try:
        async with connected(endpoint) as (client, info):
            yield Runner(client, info, judges, kind, attempts, seed)
    finally:
        await judges.close()
