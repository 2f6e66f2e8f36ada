"""GPU-seconds of attempts that were lost: each busy second of an engine is booked to an attempt's row in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.support.fake_engine import FakeClient
from tests.support.queue_bench import Queue, crew, eventually
from tests.support.served_engine import served, vanish
from thothy_ai.engine.api import CoreStats, EngineInfo, EngineStats, Orphan, Orphans
from thothy_ai.engine.client import connect
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.queue.hints import Hint
from thothy_ai.worker import unbilled_usage
from thothy_ai.worker.job_store import Ledger
from thothy_ai.worker.unbilled_usage import Arrears

RETRY = {"retry_base_seconds": 0, "retry_cap_seconds": 0}
LATENCY = 0.2


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def record(queue: Queue, session_id: UUID, busy: float) -> None:
    """A worker has heard of this engine, a while ago."""

    async def write() -> None:
        ledger = Ledger(queue.settings, "w")
        info = EngineInfo(str(session_id), "fake", "cpu", "float32", 16, 100, 1024, 0.0)
        await ledger.record_session(info, EngineStats(core=CoreStats(busy_seconds=busy)))
        await ledger.close()

    asyncio.run(write())


def claim(queue: Queue, session_id: UUID | None, worker: str = "gone") -> list[Hint]:
    """Dispatch everything, and have a worker claim it whose leases run out at once."""
    hints = queue.dispatch()
    take(queue, hints, session_id, worker)
    return hints


def take(queue: Queue, hints: list[Hint], session_id: UUID | None, worker: str = "gone") -> None:
    queue.ask(
        "claim",
        ids=[hint.job_id for hint in hints],
        dispatch_nos=[hint.dispatch_no for hint in hints],
        worker=worker,
        lease_seconds=-1,
        engine_session_id=session_id,
    )


def attempts(queue: Queue) -> dict[tuple[UUID, int], tuple[str, UUID | None, float]]:
    return {
        (row.job_id, row.attempt): (row.outcome, row.engine_session_id, row.compute_seconds)
        for row in queue.rows("SELECT * FROM attempt")
    }


def close_books(queue: Queue, silence_seconds: float = 0) -> None:
    queue.ask("reap_sessions", silence_seconds=silence_seconds)
    queue.ask("reap_books")


def test_what_a_vanished_worker_cost_is_booked_by_another(queue: Queue, tmp_path: Path) -> None:
    """One result it had and did not write, one request it left amid: the engine knows of both."""
    url, backend = f"unix://{tmp_path}/e.sock", NullEngine(LATENCY)
    had, left = queue.enqueue("ok had", "ok left")
    session_id = UUID(backend.info().session_id)
    claim(queue, session_id)
    with served(backend, url):
        vanish(url, ended=[f"{had}.1"], running=[f"{left}.1", "no attempt of ours"])
        with crew(queue, connect(url)) as team:
            eventually(lambda: backend.stats().core.requests_aborted == 2)
            queue.ask("reap_leases", **RETRY)
            eventually(lambda: all(seconds > 0 for _, _, seconds in attempts(queue).values()))
            assert {key: row[:2] for key, row in attempts(queue).items()} == {
                (had, 1): ("lost", session_id),
                (left, 1): ("lost", session_id),
            }
            assert attempts(queue)[had, 1][2] == LATENCY
            assert 0 < attempts(queue)[left, 1][2] < LATENCY
        team.foreman.join(0)


def test_a_debt_waits_for_its_row_and_is_booked_once(queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
    [job_id] = queue.enqueue("ok")
    session_id, ledger, debts = uuid4(), Ledger(queue.settings, "w"), Arrears()
    claim(queue, None)
    debts.take(Orphans(str(session_id), (Orphan(f"{job_id}.1", 0.5), Orphan("nonsense", 1.0), Orphan("a.b", 1.0))))
    loop.run_until_complete(debts.book(ledger))
    assert len(debts) == 1
    queue.ask("reap_leases", **RETRY)
    loop.run_until_complete(debts.book(ledger))
    assert (len(debts), attempts(queue)) == (0, {(job_id, 1): ("lost", session_id, 0.5)})
    debts.add((job_id, 1), uuid4(), 7.0)
    loop.run_until_complete(debts.book(ledger))
    assert (len(debts), attempts(queue)) == (0, {(job_id, 1): ("lost", session_id, 0.5)})
    loop.run_until_complete(ledger.close())


def test_debts_are_bounded_in_number_and_patience(
    queue: Queue, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unbilled_usage, "KEPT", 3)
    monkeypatch.setattr(unbilled_usage, "MAX_BATCH", 2)
    monkeypatch.setattr(unbilled_usage, "MAX_TRIES", 2)
    ledger, debts = Ledger(queue.settings, "w"), Arrears()
    for _ in range(5):
        debts.add((uuid4(), 1), uuid4(), 1.0)
    debts.add((uuid4(), 1), None, 1.0)
    debts.add((uuid4(), 1), uuid4(), 0.0)
    assert len(debts) == 3
    loop.run_until_complete(debts.book(ledger))
    assert len(debts) == 3
    loop.run_until_complete(debts.book(ledger))
    assert len(debts) == 0
    loop.run_until_complete(ledger.close())


@pytest.mark.parametrize("seconds", [0.1, 300])
def test_a_fenced_worker_books_what_its_attempt_cost(queue: Queue, seconds: float) -> None:
    """Whether a heartbeat or only its outcome tells it that it is fenced."""
    with crew(queue, FakeClient(delay=0.5), heartbeat_seconds=seconds, dispatch_timeout_seconds=1000) as team:
        [job_id] = team.work("ok slow")
        eventually(lambda: team.client.submitted)
        queue.rows("UPDATE job SET lease_until = now() - interval '1 second'")
        queue.ask("reap_leases", **RETRY)
        eventually(lambda: team.done)
    ledger = Ledger(queue.settings, "w")

    async def book() -> None:
        await team.foreman._arrears.book(ledger)
        await ledger.close()

    asyncio.run(book())
    assert attempts(queue)[job_id, 1] == ("lost", UUID(team.client.session_id), 0.25)


def test_what_a_killed_engine_leaves_is_divided_over_the_attempts_lost_with_it(queue: Queue) -> None:
    session_id, other = uuid4(), uuid4()
    ids = queue.enqueue("ok 1", "ok 2")
    claim(queue, session_id)
    queue.ask("reap_leases", **RETRY)
    [booked] = queue.enqueue("ok 3")
    claim(queue, other)
    queue.ask("reap_leases", **RETRY)
    queue.rows(
        "UPDATE attempt SET compute_seconds = 1, engine_session_id = :id WHERE job_id = :job", id=session_id, job=booked
    )
    record(queue, session_id, busy=4)
    close_books(queue)
    assert [attempts(queue)[job_id, 1][2] for job_id in (*ids, booked)] == [1.5, 1.5, 1.0]
    [session] = queue.rows("SELECT * FROM engine_session")
    assert (session.busy_seconds, session.settled_at is not None) == (4, True)
    queue.rows("UPDATE attempt SET compute_seconds = 0")
    close_books(queue)
    assert {row[2] for row in attempts(queue).values()} == {0}, "books are closed once"


def test_books_stay_open_while_something_runs_on_the_session(queue: Queue) -> None:
    """Postgres was away, and the reaper is back before the workers: what runs has cost seconds that it will book."""
    session_id = uuid4()
    queue.enqueue("ok")
    claim(queue, session_id)
    record(queue, session_id, busy=2)
    close_books(queue)
    [session] = queue.rows("SELECT * FROM engine_session")
    assert (session.ended_at is not None, session.settled_at) == (True, None)
    queue.ask("reap_leases", **RETRY)
    close_books(queue)
    [(_, _, seconds)] = attempts(queue).values()
    assert seconds == 2
    record(queue, session_id, busy=3)
    [session] = queue.rows("SELECT * FROM engine_session")
    assert (session.ended_at, session.settled_at, session.busy_seconds) == (None, None, 3), "heard again, open again"


def test_an_engine_was_busy_for_what_it_is_booked_for_at_least(queue: Queue) -> None:
    session_id = uuid4()
    queue.enqueue("ok")
    claim(queue, session_id)
    queue.ask("reap_leases", **RETRY)
    queue.rows("UPDATE attempt SET compute_seconds = 5")
    record(queue, session_id, busy=2)
    close_books(queue)
    assert [row.busy_seconds for row in queue.rows("SELECT busy_seconds FROM engine_session")] == [5]


@pytest.mark.parametrize("statement", ["claim", "claim_suspect"])
def test_a_claim_whose_answer_was_lost_leaves_a_row(queue: Queue, statement: str) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET engine_deaths = :deaths", deaths=int(statement == "claim_suspect"))
    [hint] = queue.dispatch()
    session_id = uuid4()
    taking = {"ids": [job_id], "dispatch_nos": [hint.dispatch_no], "worker": "w", "lease_seconds": 60}
    for _ in range(2):
        queue.ask(statement, **taking, engine_session_id=session_id)
    assert queue.job(job_id).attempt == 2
    assert attempts(queue) == {(job_id, 1): ("released", session_id, 0)}
    [row] = queue.rows("SELECT reason, worker FROM attempt")
    assert tuple(row) == ("answer_lost", "w")


def test_an_engine_that_is_stopped_costs_its_jobs_nothing(queue: Queue, tmp_path: Path) -> None:
    """Past its drain's deadline: no death is counted, and nobody becomes a suspect."""
    url, backend = f"unix://{tmp_path}/e.sock", NullEngine(3600)
    with served(backend, url), crew(queue, connect(url)) as team:
        [job_id] = team.work("ok")
        eventually(lambda: backend.stats().scheduler.running == 1)
        backend.stop()
        eventually(lambda: queue.job(job_id).state == "queued")
        job = queue.job(job_id)
        assert (job.failures, job.engine_deaths, job.reason) == (0, 0, "engine_stopped")
        assert attempts(queue) == {(job_id, 1): ("released", UUID(backend.info().session_id), 0)}
