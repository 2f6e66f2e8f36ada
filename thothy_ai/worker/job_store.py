"""`Ledger`: what the worker reads from Postgres and writes to it, one statement for many jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple
from uuid import UUID

from thothy_ai.db.connect import make_async_engine, reaching
from thothy_ai.db.statements import statement
from thothy_ai.db.states import JobState
from thothy_ai.engine.api import EngineInfo, EngineStats
from thothy_ai.errors import DatabaseError
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings
from thothy_ai.worker.claims import Answer, Claim
from thothy_ai.worker.outcomes import Finish

COUNTERS = ("busy_seconds", "prefill_seconds", "decode_seconds", "prompt_tokens", "cached_tokens", "output_tokens")


UNSTORABLE_CLASSES = ("22", "23", "54")  # SQLSTATE: malformed data, broken constraints, limits of size


def is_unstorable(error: DatabaseError) -> bool:
    """Whether what was to be written is at fault: another try would fail alike."""
    return error.sqlstate is not None and error.sqlstate.startswith(UNSTORABLE_CLASSES)


class Beat(NamedTuple):
    """A running job that is still ours, and whether it should go on."""

    cancel_requested: bool
    expired: bool


class Debt(NamedTuple):
    """What an attempt has cost, in seconds of an engine's session, and is not booked for."""

    job_id: UUID
    attempt: int
    session_id: UUID
    seconds: float


class Ledger:
    """One worker's hand in the record. Every method is one transaction.

    Raises `DatabaseUnreachableError`, or `DatabaseError` when a statement is refused.
    """

    def __init__(self, settings: Settings, worker: str) -> None:
        self._settings = settings
        self._worker = worker
        self._engine = make_async_engine(settings, application="worker")

    async def claim(self, hints: Sequence[Hint], session_id: UUID | None = None) -> Answer:
        """Take those of these dispatches that may run, in planned order; those that do not come back are stale.

        `session_id` names the engine they are to run on.
        """
        return Answer.of(await self._execute("claim", **self._taking(hints, session_id)))

    async def claim_suspect(self, hints: Sequence[Hint], session_id: UUID | None = None) -> Answer | None:
        """Take one of these suspects if none runs anywhere; None while another worker decides who is next."""
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                turn = (await connection.execute(statement("claim_turn"))).one()
                if not turn.mine:
                    return None
                taken = await connection.execute(statement("claim_suspect"), self._taking(hints, session_id))
                return Answer.of(taken.all())

    async def neighbours(self, claim: Claim) -> int:
        """How many jobs run beside this one, in any worker."""
        [row] = await self._execute("neighbours", id=claim.id)
        return int(row.jobs)

    async def heartbeat(self, claims: Sequence[Claim]) -> dict[tuple[UUID, int], Beat]:
        """Extend the leases of these claims; those that do not come back are no longer ours."""
        rows = await self._execute(
            "heartbeat",
            worker=self._worker,
            lease_seconds=self._settings.lease_seconds,
            ids=[claim.id for claim in claims],
            attempts=[claim.attempt for claim in claims],
        )
        return _beats(rows)

    async def stops(self) -> dict[tuple[UUID, int], Beat]:
        """This worker's jobs that should not go on."""
        return _beats(await self._execute("stops", worker=self._worker))

    async def hold(self, hints: Sequence[Hint]) -> None:
        """Say that these messages wait here."""
        await self._execute("hold", **_parallel(hints))

    async def give_back(self, hints: Sequence[Hint]) -> None:
        """Queue these dispatches again."""
        await self._execute("dispatch_undo", **_parallel(hints))

    async def finish(self, finishes: Sequence[Finish]) -> dict[tuple[UUID, int], JobState]:
        """End these attempts; those that do not come back were no longer ours, and nothing of them is kept."""
        rows = json.dumps([_row(finish) for finish in finishes])
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                ended = await connection.execute(statement("finish"), {"rows": rows, "worker": self._worker})
                states = {(row.id, row.attempt): JobState(row.state) for row in ended}
                follow_ups = [
                    follow_up.row()
                    for finish in finishes
                    if (finish.id, finish.attempt) in states
                    for follow_up in finish.follow_ups
                ]
                if follow_ups:
                    await connection.execute(statement("follow_ups"), {"rows": json.dumps(follow_ups)})
        return states

    async def book(self, debts: Sequence[Debt]) -> set[tuple[UUID, int]]:
        """Book what these attempts cost, where nothing is booked yet; returns those that have ended, booked by now."""
        job_ids, attempts, session_ids, seconds = zip(*debts, strict=True)
        rows = await self._execute(
            "book_orphans",
            job_ids=list(job_ids),
            attempts=list(attempts),
            session_ids=list(session_ids),
            seconds=list(seconds),
        )
        return {(row.job_id, row.attempt) for row in rows}

    async def record_session(self, info: EngineInfo, stats: EngineStats) -> None:
        """Note that this engine lives, and its counters."""
        row = asdict(info) | {"id": info.session_id} | {name: getattr(stats.core, name) for name in COUNTERS}
        gpus = 1 if info.device.startswith("cuda") else 0
        await self._execute("engine_session", gpus=gpus, **row)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    def _taking(self, hints: Sequence[Hint], session_id: UUID | None) -> dict[str, Any]:
        taking = {"worker": self._worker, "lease_seconds": self._settings.lease_seconds}
        return taking | {"engine_session_id": session_id} | _parallel(hints)

    async def _execute(self, name: str, **parameters: object) -> Sequence[Any]:
        with reaching(self._settings):
            async with self._engine.begin() as connection:
                done = await connection.execute(statement(name), parameters)
                return done.all() if done.returns_rows else ()


def _beats(rows: Sequence[Any]) -> dict[tuple[UUID, int], Beat]:
    return {(row.id, row.attempt): Beat(row.cancel_requested, row.expired) for row in rows}


def _parallel(hints: Sequence[Hint]) -> dict[str, list[Any]]:
    return {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}


def _row(finish: Finish) -> dict[str, Any]:
    """What the statement `finish` reads. Plain attribute reads: this runs for every job."""
    usage, output = finish.usage, finish.judged
    return {
        "id": str(finish.id),
        "attempt": finish.attempt,
        "state": finish.state,
        "outcome": finish.outcome,
        "event": finish.event,
        "reason": finish.reason,
        "detail": finish.detail,
        "delay_seconds": finish.delay_seconds,
        "failures": finish.failures,
        "engine_deaths": finish.engine_deaths,
        "engine_session_id": str(usage.engine_session_id) if usage.engine_session_id else None,
        "prompt_tokens": usage.engine.prompt_tokens,
        "cached_tokens": usage.engine.cached_tokens,
        "output_tokens": usage.engine.output_tokens,
        "compute_seconds": usage.engine.compute_seconds,
        "verdict": output.verdict if output else None,
        "locale": output.locale if output else None,
        "body": output.body if output else None,
        "text": output.text if output else None,
    }
