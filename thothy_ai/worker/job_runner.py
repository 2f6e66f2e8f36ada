"""`Foreman`: one thread with one asyncio loop; owns every job in flight.

    hints ──▶ intake: gather, claim ──▶ a flight each: engine ▸ judge ──gather──▶ finish, commit ──▶ done
                                            ▲ one heartbeat for all: cancelled, expired and fenced flights are stopped

Other threads call `hand_over`, `drain` and `join`; completions leave through `on_done`, on the foreman's thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from thothy_ai.crash_points import crash_point
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker import metrics, outcomes
from thothy_ai.worker.attempts import Attempts, StoppedError
from thothy_ai.worker.batcher import Gather
from thothy_ai.worker.claimer import Intake
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.engine_monitor import Residency
from thothy_ai.worker.heartbeat import Heart
from thothy_ai.worker.job_store import Ledger, is_unstorable
from thothy_ai.worker.outcomes import Finish
from thothy_ai.worker.retry import insist
from thothy_ai.worker.running_job import Fate, Flight
from thothy_ai.worker.unbilled_usage import Arrears

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.client import EngineClient

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.02  # a claim or a finish waits so long for companions
MAX_BATCH = 500
CLOSE_SECONDS = 5.0
LAST_WORDS_SECONDS = 10.0  # for what is released at the end of a drain to be written


class Foreman:
    """Runs the jobs that hints name. Start it once; `drain`, then `join`, end it."""

    def __init__(
        self,
        settings: Settings,
        worker: str,
        connect: Callable[[str], EngineClient],
        on_done: Callable[[Sequence[Hint]], None],
        on_death: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._connect = connect
        self._on_done = on_done
        self._on_death = on_death
        self._loop = asyncio.new_event_loop()
        self._hints: Gather[Hint] = Gather(self._loop, LINGER_SECONDS, MAX_BATCH)
        self._landed: Gather[tuple[Flight, Finish]] = Gather(self._loop, LINGER_SECONDS, MAX_BATCH)
        self._flights: set[Flight] = set()
        self._arrears = Arrears()
        self._deadline: asyncio.Future[float] = self._loop.create_future()  # how long a drain may take
        self._hurry = False
        self._changed = asyncio.Event()  # a flight has landed, or a drain is to hurry
        self._thread = threading.Thread(target=self._run, name="foreman", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def hand_over(self, hint: Hint) -> None:
        """Take a job that is dispatched."""
        self._hints.put([hint])

    def drain(self, seconds: float) -> None:
        """Claim nothing more, finish what runs within `seconds`, release the rest. A second call can only hurry it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._begin_drain, seconds)

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException:
            logger.critical("the foreman died", exc_info=True)
            self._on_death()
        finally:
            self._loop.close()

    async def _main(self) -> None:
        ledger = Ledger(self._settings, self._worker)
        client = self._connect(self._settings.require_engine_url())
        residency = Residency(client, ledger, self._arrears, self._settings.heartbeat_seconds)
        judges = ThreadPoolExecutor(1, thread_name_prefix="judge")
        attempts = Attempts(self._settings, ledger, client, residency, judges)
        intake = Intake(self._hints, ledger, residency, lambda claim: self._take_off(claim, attempts), self._on_done)
        heart = Heart(self._settings, ledger, residency, self._arrears, self._flights, intake.held)
        try:
            async with asyncio.TaskGroup() as group:
                intake.start(group)
                others = [
                    group.create_task(self._finish_forever(ledger)),
                    group.create_task(heart.run()),
                    group.create_task(heart.watch()),
                    group.create_task(residency.run()),
                ]
                await self._drained(intake)
                for task in others:
                    task.cancel()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.close()
                    await ledger.close()
            judges.shutdown(wait=False, cancel_futures=True)

    # Flights.

    def _take_off(self, claim: Claim, attempts: Attempts) -> Flight:
        flight = Flight(claim)
        self._flights.add(flight)
        metrics.IN_FLIGHT.set(len(self._flights))
        flight.task = self._loop.create_task(self._fly(flight, attempts))
        return flight

    async def _fly(self, flight: Flight, attempts: Attempts) -> None:
        try:
            finish = await attempts.run(flight.claim)
        except StoppedError as stopped:
            finish = flight.stopped(stopped.usage)
        except Exception as error:
            logger.exception("job %s failed in the worker", flight.claim.key)
            finish = attempts.failed(flight.claim, "worker_error", repr(error))
        flight.landing = True
        if flight.fate is Fate.FENCED:
            metrics.FENCED.inc()
            self._arrears.add_fenced(finish)
            self._land([flight])
        else:
            self._landed.put([(flight, finish)])

    # Finishes.

    async def _finish_forever(self, ledger: Ledger) -> None:
        while True:
            landed = await self._landed.take()
            try:
                await self._finish(ledger, landed)
            except DatabaseError as error:
                logger.warning("a batch of outcomes is refused, trying them one by one: %s", error)
                for one in landed:
                    await self._finish_alone(ledger, one)

    async def _finish(self, ledger: Ledger, landed: list[tuple[Flight, Finish]]) -> None:
        finishes = [finish for _, finish in landed]
        states = await insist("finish", lambda: ledger.finish(finishes), is_unstorable)
        crash_point("after_commit")
        for flight, finish in landed:
            state = states.get((finish.id, finish.attempt))
            metrics.count(flight.claim.kind, finish, state)
            if state is None:
                self._arrears.add_fenced(finish)
        self._land([flight for flight, _ in landed])

    async def _finish_alone(self, ledger: Ledger, one: tuple[Flight, Finish]) -> None:
        flight, finish = one
        for attempt in (finish, outcomes.unstorable(finish, "Postgres refuses its outcome")):
            try:
                return await self._finish(ledger, [(flight, attempt)])
            except DatabaseError as error:
                logger.warning("the outcome of job %s is refused: %s", flight.claim.key, error)
        self._land([flight])  # its lease runs out, and the reaper takes it back
        return None

    def _land(self, flights: list[Flight]) -> None:
        self._flights.difference_update(flights)
        metrics.IN_FLIGHT.set(len(self._flights))
        self._changed.set()
        for flight in flights:
            flight.landed.set()
        self._on_done([flight.claim.hint for flight in flights])

    # The end.

    def _begin_drain(self, seconds: float) -> None:
        if not self._deadline.done():
            self._deadline.set_result(seconds)
        elif seconds <= 0:
            self._hurry = True
            self._changed.set()

    async def _drained(self, intake: Intake) -> None:
        seconds = await self._deadline
        await intake.stop()
        await self._until_empty(seconds)
        for flight in self._flights:
            flight.stop(Fate.RELEASED)
        await self._until_empty(LAST_WORDS_SECONDS, last_words=True)

    async def _until_empty(self, seconds: float, *, last_words: bool = False) -> None:
        """Wait for all flights. Last words are not hurried: what is not written waits for a lease, and is a failure."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._flights and (last_words or not self._hurry):
                    self._changed.clear()
                    await self._changed.wait()
