"""GPU-seconds of attempts that were lost: each busy second of an engine ends up on an attempt's row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from tests.support import book_rows
from tests.support.fake_engine import FakeClient
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.served_engine import served, vanish
from thothy_ai.admin.report.check import check_bill
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.db.statements import statement
from thothy_ai.engine.api import AbandonedRequest, AbandonedUsage, GenerationRequest
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.client import connect
from thothy_ai.queue.books import close_hours, settle_sessions
from thothy_ai.queue.hints import Hint
from thothy_ai.worker.record import unbilled as unbilled_usage
from thothy_ai.worker.record.store import JobStore
from thothy_ai.worker.record.unbilled import UnbilledUsage

RETRY = {"retry_base_seconds": 0, "retry_cap_seconds": 0}
LATENCY, NEVER = 0.25, 3600.0
TOP = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def record(queue: Queue, session_id: UUID, busy: float) -> None:
    """The engine's own side has reported these busy seconds."""
    queue.rows(
        "INSERT INTO engine_session (id, model, device, dtype, gpus, num_blocks, block_size, started_at, busy_seconds)"
        " VALUES (:id, 'fake', 'cpu', 'float32', 0, 100, 16, now(), :busy)"
        " ON CONFLICT (id) DO UPDATE SET busy_seconds = excluded.busy_seconds, heartbeat_at = now(),"
        " ended_at = NULL, settled_at = NULL",
        id=session_id,
        busy=busy,
    )


def claim(queue: Queue, session_id: UUID | None, worker: str = "gone") -> list[Hint]:
    """Dispatch everything, and claim it for a worker with leases that expire at once."""
    hints = queue.dispatch()
    take(queue, hints, session_id, worker)
    return hints


def take(queue: Queue, hints: list[Hint], session_id: UUID | None, worker: str = "gone") -> None:
    queue.ask(
        "worker/claim",
        ids=[hint.job_id for hint in hints],
        dispatch_nos=[hint.dispatch_no for hint in hints],
        worker=worker,
        lease_seconds=-1,
        engine_session_id=session_id,
        model_name="",
    )


def attempts(queue: Queue) -> dict[tuple[UUID, int], tuple[str, UUID | None, float]]:
    return {
        (row.job_id, row.attempt): (row.outcome, row.engine_session_id, row.compute_seconds)
        for row in queue.rows("SELECT * FROM attempt")
    }


def ran(queue: Queue, seconds: float) -> None:
    """All attempts ran that long."""
    queue.rows("UPDATE attempt SET started_at = finished_at - make_interval(secs => :seconds)", seconds=seconds)


def settle(queue: Queue, silence_seconds: float = 0) -> None:
    queue.ask("queue/end_sessions", silence_seconds=silence_seconds)
    with queue.engine.begin() as connection:
        settle_sessions(connection)


def test_the_usage_of_a_vanished_worker_is_recorded_by_another(queue: Queue, tmp_path: Path) -> None:
    """One result was received and not written, one request was interrupted: the engine reports both."""
    url, backend, began = f"unix://{tmp_path}/e.sock", NullEngine(LATENCY), time.monotonic()

    def hang() -> None:
        backend._latency = NEVER

    had, left = queue.enqueue("ok had", "ok left")
    session_id = UUID(backend.info().session_id)
    claim(queue, session_id)
    with served(backend, url):
        vanish(url, ended=[f"{had}.1.0"], running=[f"{left}.1.0", "no attempt of ours"], once_ended=hang)
        with runner_bench(queue, connect(url)) as bench:
            eventually(lambda: backend.stats().core.requests_aborted == 2)
            queue.ask("queue/reap_leases", **RETRY)
            eventually(lambda: all(seconds > 0 for _, _, seconds in attempts(queue).values()))
            assert {key: row[:2] for key, row in attempts(queue).items()} == {
                (had, 1): ("lost", session_id),
                (left, 1): ("lost", session_id),
            }
            assert attempts(queue)[had, 1][2] == LATENCY
            assert 0 < attempts(queue)[left, 1][2] < time.monotonic() - began
        bench.runner.join(0)


def test_usage_waits_for_its_row_and_is_recorded_once(queue: Queue, loop: asyncio.AbstractEventLoop) -> None:
    [job_id] = queue.enqueue("ok")
    session_id, store, unbilled = uuid4(), JobStore(queue.settings, "w"), UnbilledUsage()
    claim(queue, None)
    seconds = {f"{job_id}.1.0": 0.5, "nonsense": 1.0, "a.b": 1.0}
    requests = tuple(AbandonedRequest(*request) for request in seconds.items())
    unbilled.add_abandoned(AbandonedUsage(str(session_id), requests))
    loop.run_until_complete(unbilled.record(store))
    assert len(unbilled) == 1
    queue.ask("queue/reap_leases", **RETRY)
    loop.run_until_complete(unbilled.record(store))
    assert (len(unbilled), attempts(queue)) == (0, {(job_id, 1): ("lost", session_id, 0.5)})
    unbilled.add((job_id, 1), uuid4(), 7.0)
    loop.run_until_complete(unbilled.record(store))
    assert (len(unbilled), attempts(queue)) == (0, {(job_id, 1): ("lost", session_id, 0.5)})
    loop.run_until_complete(store.close())


def test_unbilled_usage_is_bounded_in_number_and_tries(
    queue: Queue, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unbilled_usage, "MAX_KEPT", 3)
    monkeypatch.setattr(unbilled_usage, "MAX_BATCH", 2)
    monkeypatch.setattr(unbilled_usage, "MAX_TRIES", 2)
    store, unbilled = JobStore(queue.settings, "w"), UnbilledUsage()
    for _ in range(5):
        unbilled.add((uuid4(), 1), uuid4(), 1.0)
    unbilled.add((uuid4(), 1), None, 1.0)
    unbilled.add((uuid4(), 1), uuid4(), 0.0)
    assert len(unbilled) == 3
    loop.run_until_complete(unbilled.record(store))
    assert len(unbilled) == 3
    loop.run_until_complete(unbilled.record(store))
    assert len(unbilled) == 0
    loop.run_until_complete(store.close())


@pytest.mark.parametrize("seconds", [0.1, 300])
def test_a_fenced_worker_records_what_its_attempt_used(queue: Queue, seconds: float) -> None:
    """Whether it learns that it is fenced from a heartbeat or only from its outcome."""
    client = FakeClient()
    client.held = True
    with runner_bench(queue, client, heartbeat_seconds=seconds, dispatch_timeout_seconds=1000) as bench:
        [job_id] = bench.work("ok slow")
        eventually(lambda: bench.client.submitted)
        with queue.engine.begin() as connection:  # at once: a heartbeat in between would extend the lease
            connection.execute(text("UPDATE job SET lease_until = now() - interval '1 second'"))
            connection.execute(statement("queue/reap_leases"), RETRY)
        client.held = seconds < 300  # only a heartbeat ends it, or only its outcome
        eventually(lambda: bench.done)
    store = JobStore(queue.settings, "w")

    async def record_usage() -> None:
        await bench.runner._unbilled.record(store)
        await store.close()

    asyncio.run(record_usage())
    assert attempts(queue)[job_id, 1] == ("lost", UUID(bench.client.session_id), 0.25)


def test_what_a_killed_engine_leaves_is_divided_over_the_attempts_lost_with_it(queue: Queue) -> None:
    session_id, other = uuid4(), uuid4()
    ids = queue.enqueue("ok 1", "ok 2")
    claim(queue, session_id)
    queue.ask("queue/reap_leases", **RETRY)
    [billed] = queue.enqueue("ok 3")
    claim(queue, other)
    queue.ask("queue/reap_leases", **RETRY)
    queue.rows(
        "UPDATE attempt SET compute_seconds = 1, engine_session_id = :id WHERE job_id = :job", id=session_id, job=billed
    )
    record(queue, session_id, busy=4)
    ran(queue, 60)
    settle(queue)
    assert [attempts(queue)[job_id, 1][2] for job_id in (*ids, billed)] == [1.5, 1.5, 1.0]
    [session] = queue.rows("SELECT * FROM engine_session WHERE id = :id", id=session_id)
    assert (session.busy_seconds, session.settled_at is not None) == (4, True)
    queue.rows("UPDATE attempt SET compute_seconds = 0")
    settle(queue)
    assert {row[2] for row in attempts(queue).values()} == {0}, "a session is settled once"


@dataclass(frozen=True)
class Left:
    """Attempts as (outcome, seconds that they ran, seconds that they are billed for), before and after settling."""

    busy: float
    direct: float
    attempts: tuple[tuple[str, float, float], ...]
    billed: tuple[float, ...]
    unattributed: float


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(Left(14, 11, (("cancelled", 4.5, 3),), (3,), 0), id="asked beside a job that was cancelled"),
        pytest.param(Left(14, 0, (("cancelled", 4.5, 3),), (4.5,), 9.5), id="by something that is not counted"),
        pytest.param(Left(14, 11, (("lost", 4, 0),), (3,), 0), id="asked beside a job that was lost"),
        pytest.param(
            Left(9, 0, (("lost", 1, 0), ("lost", 10, 0), ("lost", 10, 0)), (1, 4, 4), 0), id="one ran briefly"
        ),
        pytest.param(Left(9, 0, (("lost", 6, 0), ("lost", 1, 0), ("lost", 2, 0)), (6, 1, 2), 0), id="all to the full"),
        pytest.param(Left(9.5, 0, (("lost", 6, 0), ("lost", 1, 0), ("lost", 2, 0)), (6, 1, 2), 0.5), id="and beyond"),
        pytest.param(Left(9, 1, (("lost", 6, 5), ("failed", 3, 2)), (5.5, 2.5), 0), id="of which something is known"),
        pytest.param(Left(9, 0, (("lost", 1, 0), ("failed", 9, 2)), (1, 2), 6), id="only where nothing is known"),
        pytest.param(Left(9, 0, (("succeeded", 9, 1), ("rejected", 9, 2)), (1, 2), 6), id="all have their outputs"),
        pytest.param(Left(9, 0, (("lost", -3, 0), ("lost", 0, 0)), (0, 0), 9), id="none ran, or the clock was set"),
        pytest.param(Left(9, 0, (), (), 9), id="no job at all"),
    ],
)
@pytest.mark.parametrize("closes", [False, True])
def test_what_nobody_used_is_charged_to_nobody(queue: Queue, left: Left, closes: bool) -> None:
    """Not beyond the time that an attempt ran, and not for what was asked past the queue."""
    box = book_rows.session(queue, TOP, TOP + book_rows.HOUR)
    jobs = []
    for outcome, seconds, billed in left.attempts:
        jobs.append(book_rows.job(queue, "hook", "cancelled", TOP, TOP))
        start = TOP - timedelta(seconds=seconds)
        book_rows.attempt(queue, jobs[-1], outcome, TOP, billed, box, start=start)
    queue.rows(
        "UPDATE engine_session SET busy_seconds = :busy, direct_seconds = :direct", busy=left.busy, direct=left.direct
    )
    if closes:
        close_hours(queue.engine)
    book_rows.settle(queue)
    assert [attempts(queue)[job_id, 1][2] for job_id in jobs] == pytest.approx(left.billed)
    checked = check_bill(queue.engine, TOP, TOP + 2 * book_rows.HOUR)
    sums = (checked.busy_seconds, checked.direct_seconds, checked.billed_seconds, checked.unattributed_seconds)
    assert sums == pytest.approx((left.busy, left.direct, sum(left.billed), left.unattributed))
    assert bool(checked.findings) == (left.unattributed > 0)
    report = drain_report(queue.engine, TOP - book_rows.HOUR, TOP + 2 * book_rows.HOUR)
    gpus = 2
    assert report.total.busy_seconds == pytest.approx(gpus * sum(left.billed))
    assert (report.direct_seconds, report.unattributed_seconds) == pytest.approx(
        (gpus * left.direct, gpus * left.unattributed)
    )


def test_what_is_asked_past_the_queue_is_counted_as_such(queue: Queue, tmp_path: Path) -> None:
    """Also if its client leaves; and a job's seconds never are."""
    url, backend = f"unix://{tmp_path}/e.sock", NullEngine(LATENCY)

    async def ask() -> None:
        client = connect(url)
        await client.start()
        await (await client.submit(GenerationRequest("one", text="x"))).result()
        backend._latency = NEVER  # so that it runs when its client leaves
        await client.submit(GenerationRequest("two", text="x"))
        await client.close()

    began = time.monotonic()
    with served(backend, url), runner_bench(queue, connect(url)) as bench:
        [job_id] = bench.work("ok")
        eventually(lambda: bench.done)
        asyncio.run(ask())
        eventually(lambda: backend.stats().core.requests_aborted == 1)
        core = backend.stats().core
        [(_, _, billed)] = attempts(queue).values()
        assert queue.job(job_id).state == "succeeded"
        assert billed == LATENCY
        assert LATENCY <= core.direct_seconds < time.monotonic() - began
        assert core.busy_seconds == pytest.approx(core.direct_seconds + billed)


def test_a_session_is_not_settled_while_something_runs_in_it(queue: Queue) -> None:
    """Postgres was away, and the reaper is back before the workers: running jobs will still report their usage."""
    session_id = uuid4()
    queue.enqueue("ok")
    claim(queue, session_id)
    record(queue, session_id, busy=2)
    settle(queue)
    [session] = queue.rows("SELECT * FROM engine_session WHERE id = :id", id=session_id)
    assert (session.ended_at is not None, session.settled_at) == (True, None)
    queue.ask("queue/reap_leases", **RETRY)
    ran(queue, 60)
    settle(queue)
    [(_, _, seconds)] = attempts(queue).values()
    assert seconds == 2
    record(queue, session_id, busy=3)
    [session] = queue.rows("SELECT * FROM engine_session WHERE id = :id", id=session_id)
    assert (session.ended_at, session.settled_at, session.busy_seconds) == (None, None, 3), "a heartbeat reopens it"


def test_an_engine_was_busy_for_at_least_what_it_is_billed_for(queue: Queue) -> None:
    session_id = uuid4()
    queue.enqueue("ok")
    claim(queue, session_id)
    queue.ask("queue/reap_leases", **RETRY)
    queue.rows("UPDATE attempt SET compute_seconds = 5")
    record(queue, session_id, busy=2)
    settle(queue)
    [session] = queue.rows("SELECT * FROM engine_session WHERE id = :id", id=session_id)
    assert session.busy_seconds == 5


@pytest.mark.parametrize("statement", ["worker/claim", "worker/claim_quarantined"])
def test_a_claim_whose_answer_was_lost_leaves_a_row(queue: Queue, statement: str) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET engine_deaths = :deaths", deaths=int(statement == "worker/claim_quarantined"))
    [hint] = queue.dispatch()
    session_id = uuid4()
    taking = {"ids": [job_id], "dispatch_nos": [hint.dispatch_no], "worker": "w", "lease_seconds": 60}
    limits = {"once": 512, "twice": 32, "lone": 8} if statement == "worker/claim_quarantined" else {}
    for _ in range(2):
        queue.ask(statement, **taking, **limits, engine_session_id=session_id, model_name="")
    assert queue.job(job_id).attempt == 2
    assert attempts(queue) == {(job_id, 1): ("released", session_id, 0)}
    [row] = queue.rows("SELECT reason, worker FROM attempt")
    assert tuple(row) == ("answer_lost", "w")


def test_an_engine_that_is_stopped_costs_its_jobs_nothing(queue: Queue, tmp_path: Path) -> None:
    """Past its shutdown deadline: no death is counted, and no job is quarantined."""
    url, backend = f"unix://{tmp_path}/e.sock", NullEngine(3600)
    with served(backend, url), runner_bench(queue, connect(url)) as bench:
        [job_id] = bench.work("ok")
        eventually(lambda: backend.stats().scheduler.running == 1)
        backend.stop()
        eventually(lambda: queue.job(job_id).state == "queued")
        job = queue.job(job_id)
        assert (job.failures, job.engine_deaths, job.reason) == (0, 0, "engine_stopped")
        assert attempts(queue) == {(job_id, 1): ("released", UUID(backend.info().session_id), 0)}
