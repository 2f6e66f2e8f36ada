"""`JobStore`: a worker's statements, one for many jobs; and `retry_until_answered`, for those that must not fail."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from thothy_ai.db.connect import SHORT_TRANSACTIONS, make_async_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.errors import DatabaseError
from thothy_ai.plans.context import NO_DOUBTS, Doubts, VerifierModel
from thothy_ai.queue.follow_ups import settled
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker.record.claims import AttemptRef, Claim, ClaimResult, GroupSizes
from thothy_ai.worker.record.finish import Finish, alike

logger = logging.getLogger(__name__)

MIN_PAUSE, MAX_PAUSE = 0.2, 5.0  # seconds, between two tries of a query

T = TypeVar("T")


async def retry_until_answered(
    what: str, ask: Callable[[], Awaitable[T]], is_final: Callable[[DatabaseError], bool] = lambda _: False
) -> T:
    """The result of `ask`, with exponential backoff between tries. Raises only errors that are final."""
    pause = MIN_PAUSE
    while True:
        try:
            return await ask()
        except DatabaseError as error:
            if is_final(error):
                raise
            logger.warning("%s is retried: %s", what, error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_PAUSE)


class Finished(NamedTuple):
    """The states of the attempts that ended; those of neither part were fenced off, and nothing of them is written.

    `outdated` outputs must be compared with newer artifacts, and finished again.
    """

    states: dict[AttemptRef, JobState]
    outdated: frozenset[AttemptRef]


class LeaseStatus(NamedTuple):
    """A running job that is still this worker's, and whether it is to be stopped."""

    cancel_requested: bool
    expired: bool


class UsageRecord(NamedTuple):
    """The usage of an attempt in seconds of an engine session, `recorded` of which are already in its row."""

    job_id: UUID
    attempt: int
    session_id: UUID
    seconds: float
    recorded: float = 0.0


class JobStore:
    """One worker's access to the record. Every method is one transaction.

    Raises `DatabaseUnreachableError`, or `DatabaseError` when a statement is refused.
    """

    def __init__(self, settings: Settings, worker: str) -> None:
        self._settings = settings
        self._worker = worker
        self._engine = make_async_engine(settings, application="worker", session=SHORT_TRANSACTIONS)
        # For statements that are repeated all the time: they commit by themselves, so that a suspended worker keeps no
        # lock. Claiming and finishing must be able to roll back: if a worker is suspended in between, its jobs are
        # locked until Postgres gives it up.
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def claim(self, hints: Sequence[Hint], session_id: UUID | None = None, model_name: str = "") -> ClaimResult:
        """Claim the dispatches that may run, in planned order; those that are not returned are stale.

        They will run in this engine session with the model `model_name`: any other name in a job is an adapter.
        """
        claiming = self._claiming(hints, session_id, model_name)
        return ClaimResult.of(await self._execute("worker/claim", **claiming), session_id)

    async def claim_quarantined(
        self, hints: Sequence[Hint], session_id: UUID | None, sizes: GroupSizes, model_name: str = ""
    ) -> ClaimResult | None:
        """Claim quarantined jobs, of these and of others, as far as some may run on this engine.

        None while another worker of the engine holds the lock.
        """
        session = {"engine_session_id": session_id}
        claiming = self._claiming(hints, session_id, model_name) | asdict(sizes)
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                lock = (await connection.execute(statement("worker/quarantine_lock"), session)).one()
                if not lock.acquired:
                    return None
                rows = await connection.execute(statement("worker/claim_quarantined"), claiming)
                return ClaimResult.of(rows.all(), session_id)

    async def others_running(self, session_id: UUID | None) -> int:
        """How many jobs run on this engine in any worker, except this worker's exclusive ones."""
        [row] = await self._execute("worker/others_running", worker=self._worker, engine_session_id=session_id)
        return int(row.jobs)

    async def heartbeat(self, claims: Sequence[Claim]) -> dict[AttemptRef, LeaseStatus]:
        """Extend the leases of these claims; those that are not returned belong to another attempt now."""
        rows = await self._execute(
            "worker/heartbeat",
            self._autocommit,
            worker=self._worker,
            lease_seconds=self._settings.lease_seconds,
            ids=[claim.id for claim in claims],
            attempts=[claim.attempt for claim in claims],
        )
        return _lease_statuses(rows)

    async def stop_requests(self) -> dict[AttemptRef, LeaseStatus]:
        """This worker's running jobs that are to be stopped."""
        return _lease_statuses(await self._execute("worker/stop_requests", worker=self._worker))

    async def hold(self, hints: Sequence[Hint]) -> None:
        """Note that these messages wait here and are not lost."""
        await self._execute("worker/hold", self._autocommit, **_parallel(hints))

    async def give_back(self, hints: Sequence[Hint]) -> None:
        await self._execute("queue/undo_dispatch", **_parallel(hints))

    async def finish(self, finishes: Sequence[Finish]) -> Finished:
        """End these attempts, except those whose output is to be compared with artifacts that came meanwhile."""
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                outdated = await self._outdated(connection, finishes)
                finishes = [finish for finish in finishes if finish.attempt_ref not in outdated]
                rows = json.dumps([finish.row() for finish in finishes])
                ended = await connection.execute(statement("worker/finish"), {"rows": rows, "worker": self._worker})
                states = {(row.id, row.attempt): JobState(row.state) for row in ended}
                await self._follow(connection, [each for each in finishes if each.attempt_ref in states])
        return Finished(states, outdated)

    async def _follow(self, connection: AsyncConnection, finishes: Sequence[Finish]) -> None:
        """Insert the follow-ups of these artifacts; they supersede those of artifacts that were sent back."""
        made = defaultdict[UUID, list[Any]](list)
        if again := [finish.id for finish in finishes if finish.settles_again]:
            for row in (await connection.execute(statement("queue/follow_ups_of"), {"ids": again})).mappings():
                made[row["parent_id"]].append(row)
        rows, stale = list[dict[str, Any]](), list[UUID]()
        for finish in finishes:
            new, old = settled([follow_up.row() for follow_up in finish.follow_ups], made[finish.id])
            rows += new
            stale += old
        if stale:
            await connection.execute(statement("queue/supersede"), {"ids": stale})
        if rows:
            await connection.execute(statement("queue/follow_ups"), {"rows": json.dumps(rows)})

    async def _outdated(self, connection: AsyncConnection, finishes: Sequence[Finish]) -> frozenset[AttemptRef]:
        """The attempts whose accepted output may be nearly the same as another one that was accepted meanwhile.

        Locks their tenants and kinds until the end of the transaction; without signatures there is nothing to do.
        """
        signed = [finish for finish in finishes if finish.may_be_outdated]
        if not signed or not self._settings.duplicate_days:
            return frozenset()
        await connection.execute(statement("worker/lock_signatures"), {"ids": [finish.id for finish in signed]})
        compared = {"rows": json.dumps([finish.compared_row() for finish in signed])}
        days = {"days": self._settings.duplicate_days}
        rows = await connection.execute(statement("worker/unseen_similar"), compared | days)
        return frozenset((row.id, row.attempt) for row in rows) | alike(signed)

    async def similar(
        self, claim: Claim, locale: str, signature: Sequence[int], days: int
    ) -> tuple[list[Any], tuple[UUID, ...]]:
        """Bodies and jobs of artifacts of the last days that may be nearly the same as one with this signature."""
        rows = await self._execute(
            "worker/similar",
            tenant=claim.tenant,
            kind=claim.kind,
            locale=locale,
            signature=list(signature),
            days=days,
            job_id=claim.id,
        )
        return [row.body for row in rows], tuple(row.job_id for row in rows)

    async def examples(self, tenant: str, voice: str, language: str, limit: int) -> Sequence[Any]:
        """Jobs and texts of the latest approved examples of this voice."""
        return await self._execute("worker/examples", tenant=tenant, voice=voice, language=language, limit=limit)

    async def measured_verifier(self, verifier: VerifierModel) -> Doubts:
        """How many doubts of a verifier were right and how many wrong in its latest measurement."""
        rows = await self._execute("worker/measured_verifier", **verifier._asdict())
        return Doubts(*rows[0]) if rows else NO_DOUBTS

    async def record_usage(self, usages: Sequence[UsageRecord]) -> set[AttemptRef]:
        """Record these attempts' usage where none is recorded; returns the attempts that have ended."""
        job_ids, attempts, session_ids, seconds, recorded = zip(*usages, strict=True)
        rows = await self._execute(
            "worker/record_usage",
            job_ids=list(job_ids),
            attempts=list(attempts),
            session_ids=list(session_ids),
            seconds=list(seconds),
            recorded=list(recorded),
        )
        return {(row.job_id, row.attempt) for row in rows}

    async def show_presence(self, session_id: str) -> bool:
        """Note that this worker reaches the engine of this session: the dispatcher sends jobs there.

        Returns whether the engine's registrar has recorded the session; if not, nothing is noted.
        """
        return bool(await self._execute("worker/present", session_id=session_id))

    async def close(self) -> None:
        await self._engine.dispose()

    def _claiming(self, hints: Sequence[Hint], session_id: UUID | None, model_name: str) -> dict[str, Any]:
        claiming = {"worker": self._worker, "lease_seconds": self._settings.lease_seconds}
        return claiming | {"engine_session_id": session_id, "model_name": model_name} | _parallel(hints)

    async def _execute(self, name: str, engine: AsyncEngine | None = None, /, **parameters: object) -> Sequence[Any]:
        with reaching(self._settings):
            async with (engine or self._engine).begin() as connection:
                done = await connection.execute(statement(name), parameters)
                return done.all() if done.returns_rows else ()


def _lease_statuses(rows: Sequence[Any]) -> dict[AttemptRef, LeaseStatus]:
    return {(row.id, row.attempt): LeaseStatus(row.cancel_requested, row.expired) for row in rows}


def _parallel(hints: Sequence[Hint]) -> dict[str, list[Any]]:
    return {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}
