"""`WorkerLoop`: one thread with one asyncio loop, which owns all jobs in flight.

    hints ─▶ Claimer: one claim for many ─▶ JobInFlight each: AttemptRunner ─▶ Committer: one commit for many ─▶ on_done
                                                  ▲
                                                  └─ Heartbeat: one for all; stops what is cancelled, expired or fenced

Other threads call `hand_over`, `shut_down` and `join`; `on_done` is called on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from thothy_ai.foreign import is_foreign
from thothy_ai.plans.judges import Judges
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker import metrics, outcomes
from thothy_ai.worker.attempt import AttemptRunner, StoppedError
from thothy_ai.worker.batcher import Batcher
from thothy_ai.worker.claimer import Claimer
from thothy_ai.worker.committer import Committer
from thothy_ai.worker.engine_monitor import EngineMonitor
from thothy_ai.worker.heartbeat import Heartbeat
from thothy_ai.worker.job_in_flight import JobInFlight, StopReason
from thothy_ai.worker.live import LivePublisher
from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.finish import Finish
from thothy_ai.worker.record.store import JobStore
from thothy_ai.worker.record.unbilled import UnbilledUsage
from thothy_ai.worker.registration.served import record_server

if TYPE_CHECKING:  # the client's module is only needed where a client is made
    from thothy_ai.engine.serving.client import EngineClient

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.02  # how long a claim or a commit waits for more of its batch
MAX_BATCH = 500
CLOSE_SECONDS = 5.0
RELEASE_SECONDS = 10.0  # to write the outcomes of jobs that are released at the end of a shutdown


class WorkerLoop:
    """Runs the jobs that hints name. Start it once; `shut_down`, then `join`, end it."""

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
        self._closing = threading.RLock()  # the loop is not closed while it is called; signal handlers may call twice
        self._hints: Batcher[Hint] = Batcher(self._loop, LINGER_SECONDS, MAX_BATCH)
        self._finishes: Batcher[tuple[JobInFlight, Finish]] = Batcher(self._loop, LINGER_SECONDS, MAX_BATCH)
        self._jobs: set[JobInFlight] = set()
        self._unbilled = UnbilledUsage()
        self._monitor: EngineMonitor | None = None
        self._deadline: asyncio.Future[float] = self._loop.create_future()  # seconds that a shutdown may take
        self._release_now = False
        self._changed = asyncio.Event()  # a job has finished, or the shutdown is to release at once
        self._thread = threading.Thread(target=self._run, name="worker-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def engine_name(self) -> str:
        """The name of the engine that answered last; empty until one has. From any thread."""
        return self._monitor.info.name if self._monitor and self._monitor.info else ""

    def hand_over(self, hint: Hint) -> None:
        """Queue a hint, to be claimed."""
        self._hints.put([hint])

    def shut_down(self, seconds: float) -> None:
        """Claim nothing more, finish jobs in flight within `seconds`, release the rest; a later call with 0, now."""
        with self._closing:
            if self._thread.is_alive() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._begin_shutdown, seconds)

    def join(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end; returns whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException:
            logger.critical("the worker's loop died", exc_info=True)
            self._on_death()
        finally:
            with self._closing:
                self._loop.close()

    async def _main(self) -> None:
        settings = self._settings
        store = JobStore(settings, self._worker)
        client = self._connect(settings.require_engine_url())
        self._monitor = monitor = EngineMonitor(client, store, self._unbilled, settings.heartbeat_seconds)
        judges = Judges(settings.kinds, settings.judge_seconds, settings.judges, settings.gates_as_findings)
        live = LivePublisher(settings, monitor)
        attempts = AttemptRunner(settings, store, monitor, judges, live)
        claimer = Claimer(
            self._hints,
            store,
            monitor,
            lambda claim: self._start_job(claim, attempts),
            self._on_done,
            lambda: {job.claim.hint for job in self._jobs},
        )
        committer = Committer(
            self._finishes,
            store,
            self._unbilled,
            lambda job, finish: self._compare_again(job, finish, attempts),
            self._remove,
        )
        heartbeat = Heartbeat(settings, store, monitor, self._unbilled, self._jobs, claimer.waiting_hints)
        try:
            async with asyncio.TaskGroup() as group:
                claimer.start(group)
                others = [
                    group.create_task(committer.run()),
                    group.create_task(heartbeat.run()),
                    group.create_task(heartbeat.watch_stop_requests()),
                    group.create_task(monitor.run()),
                    group.create_task(live.run()),
                    group.create_task(judges.start_early()),
                ]
                if is_foreign(settings.require_engine_url()):
                    others.append(group.create_task(record_server(settings, client)))
                seconds = await self._deadline
                await claimer.stop()
                await self._until_idle(seconds)
                for job in self._jobs:
                    job.stop(StopReason.RELEASED)
                await self._until_idle(RELEASE_SECONDS, releasing=True)
                for task in others:
                    task.cancel()
        finally:
            await judges.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.close()
                    await store.close()

    def _start_job(self, claim: Claim, attempts: AttemptRunner) -> None:
        job = JobInFlight(claim)
        self._jobs.add(job)
        metrics.IN_FLIGHT.set(len(self._jobs))
        job.task = self._loop.create_task(self._run_job(job, attempts))

    async def _run_job(self, job: JobInFlight, attempts: AttemptRunner) -> None:
        try:
            finish = await attempts.run(job.claim)
        except StoppedError as stopped:
            finish = outcomes.stopped(job.claim, job.stop_reason, stopped.usage)
        except Exception as error:
            logger.exception("job %s failed in the worker", job.claim.key)
            finish = attempts.failed(job.claim, "worker_error", repr(error))
        job.finishing = True
        if job.stop_reason is StopReason.FENCED:
            metrics.FENCED.inc()
            self._unbilled.add_fenced(finish)
            self._remove([job])
        else:
            self._finishes.put([(job, finish)])

    def _compare_again(self, job: JobInFlight, finish: Finish, attempts: AttemptRunner) -> None:
        """Compare the job's output again, since a similar one was accepted meanwhile."""

        async def compare() -> None:
            try:
                compared = await attempts.compared(job.claim, finish)
            except Exception as error:
                logger.exception("job %s failed in the worker", job.claim.key)
                compared = attempts.failed(job.claim, "worker_error", repr(error), finish.usage)
            self._finishes.put([(job, compared)])

        job.task = self._loop.create_task(compare())

    def _remove(self, jobs: Sequence[JobInFlight]) -> None:
        self._jobs.difference_update(jobs)
        metrics.IN_FLIGHT.set(len(self._jobs))
        self._changed.set()
        self._on_done([job.claim.hint for job in jobs])

    def _begin_shutdown(self, seconds: float) -> None:
        if not self._deadline.done():
            self._deadline.set_result(seconds)
        elif seconds <= 0:
            self._release_now = True
            self._changed.set()

    async def _until_idle(self, seconds: float, *, releasing: bool = False) -> None:
        """Wait for all jobs. Releasing is never cut short: an unwritten release would wait for the lease's end and
        count as a failure.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._jobs and (releasing or not self._release_now):
                    self._changed.clear()
                    await self._changed.wait()
