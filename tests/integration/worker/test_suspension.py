"""A process that is suspended amid a statement (SIGSTOP, a machine that sleeps) keeps no lock, and loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy import Engine, event, text

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench
from thothy_ai.db.statements import source
from thothy_ai.http.record import DoorRecord
from thothy_ai.worker.record.store import JobStore

REAP = {"retry_base_seconds": 0, "retry_cap_seconds": 0}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres waits for less long, as a test does."""
    limits = {"idle_in_transaction_session_timeout": "1s", "tcp_user_timeout": "1s"}
    monkeypatch.setattr("thothy_ai.worker.record.store.SHORT_TRANSACTIONS", limits)


@contextmanager
def suspended_amid(name: str, bench: RunnerBench) -> Iterator[threading.Event]:
    """Suspend this worker once Postgres has answered its statement of this name; the event says that it is."""
    amid, awake = threading.Event(), threading.Event()

    def answered(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if threading.current_thread() is bench.runner._thread and statement.startswith(source(name)[:70]):
            amid.set()
            assert awake.wait(PATIENCE)

    event.listen(Engine, "after_cursor_execute", answered)
    try:
        yield amid
    finally:
        event.remove(Engine, "after_cursor_execute", answered)
        awake.set()


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize(
    ("amid", "attempts"), [("worker/claim", ["succeeded"]), ("worker/finish", ["lost", "succeeded"])]
)
def test_a_job_runs_elsewhere_or_here_after_its_worker_was_suspended_before_a_commit(
    queue: Queue, caplog: pytest.LogCaptureFixture, amid: str, attempts: list[str], elsewhere: bool
) -> None:
    with runner_bench(queue, lease_seconds=0.5) as suspended:
        with suspended_amid(amid, suspended) as reached:
            [job_id] = queue.enqueue("ok")
            [hint] = queue.dispatch()
            suspended.runner.hand_over(hint)
            assert reached.wait(PATIENCE)
            eventually(lambda: queue.rows("SELECT id FROM job FOR UPDATE SKIP LOCKED"))
            if elsewhere:
                with runner_bench(queue) as other:
                    if amid == "worker/finish":
                        eventually(lambda: queue.ask("queue/reap_leases", **REAP))
                        [again] = queue.dispatch()
                    else:
                        again = hint
                    other.runner.hand_over(again)
                    eventually(lambda: again in other.done)
        eventually(lambda: hint in suspended.done)
    assert queue.outcomes(job_id) == (attempts if elsewhere else ["succeeded"])
    assert (queue.job(job_id).attempt, queue.verdicts(job_id)) == (len(queue.outcomes(job_id)), ["accepted"])
    what = amid.removeprefix("worker/")
    assert f"{what} is retried: Postgres at" in caplog.text
    assert "ended the connection: terminating connection due to idle-in-transaction timeout" in caplog.text


def test_a_worker_that_is_suspended_before_it_reads_an_answer_loses_its_session(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an answer larger than what the kernel takes for a process that does not read."""
    monkeypatch.setattr("thothy_ai.worker.record.store.SHORT_TRANSACTIONS", {"tcp_user_timeout": "1s"})
    store = JobStore(queue.settings, "suspended")

    async def body() -> None:
        async with store._engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert isinstance(driver, AsyncConnection)
            driver.pgconn.send_query(b"SELECT repeat('x', 10000000)")
            assert driver.pgconn.flush() == 0
            query = "SELECT FROM pg_stat_activity WHERE pid = :pid"
            await asyncio.to_thread(eventually, lambda: not queue.rows(query, pid=driver.info.backend_pid))
            await connection.invalidate()
        await store.close()

    asyncio.run(body())


def test_a_worker_that_is_suspended_amid_a_heartbeat_locks_no_job(queue: Queue) -> None:
    """Otherwise nobody could take its jobs back."""
    [job_id], store, found = queue.enqueue("ok"), JobStore(queue.settings, "suspended"), list[Any]()

    def suspended(*_: object) -> None:
        """Postgres has answered, and the worker does nothing more."""
        found.append(queue.rows("SELECT id FROM job FOR UPDATE NOWAIT"))

    async def body() -> None:
        [hint] = queue.dispatch()
        answers = store._engine.sync_engine, "after_cursor_execute", suspended
        event.listen(*answers)
        await store.hold([hint])
        event.remove(*answers)
        [claim] = (await store.claim([hint])).claims
        event.listen(*answers)
        assert await store.heartbeat([claim])
        await store.close()

    asyncio.run(body())
    assert found == [[(job_id,)]] * 2


def test_a_door_that_is_suspended_before_a_commit_loses_its_session(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    locking = text("SELECT id FROM job FOR UPDATE")
    queue.enqueue("ok")
    monkeypatch.setattr("thothy_ai.http.record.SHORT_TRANSACTIONS", {"idle_in_transaction_session_timeout": "1s"})
    record = DoorRecord(queue.settings)

    async def body() -> None:
        async with record._engine.connect() as connection:
            await connection.execute(locking)
            await asyncio.to_thread(eventually, lambda: queue.rows("SELECT id FROM job FOR UPDATE SKIP LOCKED"))
            await connection.invalidate()
        await record.close()

    asyncio.run(body())
