"""Waiting for jobs: woken by notifications, by polls where there are none; many jobs by one query."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url

from benchmarks.waiting import counted
from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.db.fragments import IDS_PER_NOTIFICATION
from thothy_ai.errors import (
    InvalidJobError,
    JobCancelledError,
    JobFailedError,
    ResultTimeoutError,
    UnknownJobError,
    UnreadableArtifactError,
    WaitTimeoutError,
)
from thothy_ai.producer import AsyncProducer, Job, Producer, listener, snapshot

LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
NEVER = 3600.0
T = TypeVar("T")


@pytest.fixture
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_DELAY", "MAX_DELAY", "LISTENING_DELAY"):
        monkeypatch.setattr(snapshot, name, NEVER)


def listeners(queue: Queue) -> int:
    return int(queue.rows(LISTENERS)[0][0])


def aside(act: Callable[[], T]) -> Future[T]:
    """Run it on a thread that ends with the process: a wait that never ends must not keep a failed test."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@pytest.mark.usefixtures("_no_polls")
def test_a_notification_ends_the_wait(queue: Queue) -> None:
    jobs = queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(8)])
    results = [aside(job.result) for job in jobs]
    eventually(lambda: listeners(queue) == 1)  # one for all of them
    with runner_bench(queue) as bench:
        bench.settle()
    assert [result.result(PATIENCE).echo for result in results] == [f"ok {number}" for number in range(8)]


@pytest.mark.usefixtures("_no_polls")
@pytest.mark.parametrize("way", ["cancel", "expire", "lease"])
def test_however_a_job_ends_the_wait_ends(queue: Queue, way: str) -> None:
    job = queue.producer.enqueue(Echo(text="ok"), max_attempts=1)
    result = aside(job.result)
    eventually(lambda: listeners(queue) == 1)
    if way == "cancel":
        job.cancel()
    elif way == "expire":
        queue.rows("UPDATE job SET deadline = now()")
        queue.ask("queue/reap_expired", limit=10)
    else:
        queue.rows("UPDATE job SET state = 'running', worker = 'w', lease_until = now(), started_at = now()")
        queue.ask("queue/reap_leases", retry_base_seconds=0, retry_cap_seconds=0)
    assert result.exception(PATIENCE) is not None


def test_a_job_that_has_ended_needs_no_listener(queue: Queue) -> None:
    job = queue.producer.enqueue(Echo(text="ok"))
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.result()
    assert listeners(queue) == 0


@pytest.mark.usefixtures("_no_polls")
def test_a_lost_connection_misses_nothing(queue: Queue) -> None:
    job = queue.producer.enqueue(Echo(text="ok"))
    one, several = aside(job.result), aside(lambda: queue.producer.wait_all([job]))
    eventually(lambda: listeners(queue) == 1)
    queue.rows(LISTENERS.replace("count(*)", "pg_terminate_backend(pid)"))
    queue.rows("UPDATE job SET state = 'cancelled', finished_at = now()")  # a worker that notifies nobody
    with pytest.raises(JobCancelledError):
        one.result(PATIENCE)
    assert isinstance(several.result(PATIENCE)[0].error, JobCancelledError)


def test_without_notifications_jobs_are_polled(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler in transaction mode, and from workers that do not notify."""
    monkeypatch.setattr(snapshot, "LISTENING_DELAY", 0.1)
    for settings in (queue.settings, queue.settings.model_copy(update={"database_pooler": "transaction"})):
        with Producer(settings) as producer:
            job = producer.enqueue(Echo(text="ok"))
            result = aside(job.result)
            queue.rows("UPDATE job SET state = 'cancelled', finished_at = now()")
            with pytest.raises(JobCancelledError):
                result.result(PATIENCE)
    eventually(lambda: listeners(queue) == 0)  # its process in Postgres takes a moment to end


def test_a_listener_nobody_needs_ends_and_starts_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE_SECONDS", 0.1)
    for _ in range(2):
        job = queue.producer.enqueue(Echo(text="ok"))
        waiting = aside(job.result)
        eventually(lambda: listeners(queue) == 1)
        assert job.cancel()
        assert isinstance(waiting.exception(PATIENCE), JobCancelledError)
        eventually(lambda: listeners(queue) == 0)
        eventually(lambda: not any(thread.name == "listener" for thread in threading.enumerate()))


def test_notifications_list_ids_and_nothing_else(queue: Queue) -> None:
    ids = queue.enqueue(*(f"hopeless secret {number}" for number in range(IDS_PER_NOTIFICATION + 50)))
    url = make_url(queue.settings.require_database_url()).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as other:
        other.execute("LISTEN thothy_finished")
        queue.ask("queue/cancel", ids=ids, tenant=None)
        notes = [note.payload.split(",") for note in other.notifies(timeout=PATIENCE, stop_after=2)]
    assert sorted(map(len, notes)) == [50, IDS_PER_NOTIFICATION]
    assert {UUID(key) for note in notes for key in note} == set(ids)


@pytest.mark.usefixtures("_no_polls")
def test_all_jobs_in_the_order_given(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends in its own way; a job may be given twice; an artifact may be unreadable."""
    monkeypatch.setattr("thothy_ai.producer.gathering.LINGER_SECONDS", 1.0)  # they end further apart on a busy machine
    texts = [*(f"ok {number}" for number in range(40)), "hopeless"]
    jobs = queue.producer.enqueue_many([Echo(text=text) for text in texts])
    cancelled = queue.producer.enqueue(Echo(text="ok"), not_before=datetime.now(UTC) + timedelta(days=1))
    with counted(queue.producer) as sent:
        given = [*reversed(jobs), cancelled, jobs[0]]
        waiting = aside(lambda: queue.producer.wait_all(given))
        eventually(lambda: listeners(queue) == 1)
        with runner_bench(queue) as bench:
            bench.hand_over()
            eventually(lambda: queue.open() == 1)
        queue.rows("UPDATE artifact SET body = '{}' WHERE job_id = :id", id=jobs[1].id)
        assert not waiting.done()
        assert queue.ask("queue/cancel", ids=[cancelled.id], tenant=None)
        ended = waiting.result(PATIENCE)
    assert [one.snapshot.id for one in ended] == [job.id for job in given]
    assert ended[-1].result() == EchoArtifact(echo="ok 0")
    assert ended[1].artifact == EchoArtifact(echo="ok 39")
    for position, error in ((0, JobFailedError), (-2, JobCancelledError), (-4, UnreadableArtifactError)):
        with pytest.raises(error):
            ended[position].result()
    assert len(sent) < len(jobs) / 2, "a query per job"


def test_thousands_of_jobs(queue: Queue) -> None:
    jobs = queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(3000)])
    queue.ask("queue/cancel", ids=[job.id for job in jobs], tenant=None)
    with counted(queue.producer) as sent:
        assert len(queue.producer.wait_all(jobs, 60)) == 3000
    assert len(sent) == 1


@pytest.mark.parametrize("timeout", [0, -1, -0.001])
def test_a_timeout_that_has_passed_looks_once(queue: Queue, timeout: float) -> None:
    ended, waiting = queue.producer.enqueue_many([Echo(text="ok 1"), Echo(text="ok 2")])
    queue.ask("queue/cancel", ids=[ended.id], tenant=None)
    assert [one.snapshot.id for one in queue.producer.wait_all([ended], timeout)] == [ended.id]
    with pytest.raises(JobCancelledError):
        ended.result(timeout)
    with pytest.raises(WaitTimeoutError, match=r"^1 of 2 jobs have not ended after 0 s: "):
        queue.producer.wait_all([ended, waiting], timeout)
    with pytest.raises(ResultTimeoutError, match=r" is still queued after 0 s$"):
        waiting.result(timeout)


def test_ids_will_do_and_what_is_none_is_said(queue: Queue) -> None:
    jobs = queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(3)])
    queue.ask("queue/cancel", ids=[job.id for job in jobs], tenant=None)
    ended = queue.producer.wait_all([str(jobs[0].id), jobs[1].id, jobs[2]], 60)
    assert [one.snapshot.id for one in ended] == [job.id for job in jobs]
    wrong: list[tuple[Any, str]] = [
        (["id"], "id: 'id' is not a job id"),
        (str(jobs[0].id), "is not a list of jobs or of their ids"),
        (jobs[0], "is not a list of jobs or of their ids"),
        ([7], "7 is neither a job nor the id of one"),
        ([None], "None is neither a job nor the id of one"),
    ]
    for given, says in wrong:
        with pytest.raises(InvalidJobError, match=re.escape(says)):
            queue.producer.wait_all(given, 60)


def test_a_timeout_names_what_is_open(queue: Queue) -> None:
    jobs = queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(5)])
    jobs[2].cancel()
    with pytest.raises(WaitTimeoutError, match=r"^4 of 5 jobs have not ended after 0\.2 s: .*, …$") as caught:
        queue.producer.wait_all(jobs, 0.2)
    assert caught.value.open == tuple(job.id for job in jobs if job is not jobs[2])
    assert isinstance(caught.value, TimeoutError)
    assert queue.producer.wait_all([], 0) == []
    with pytest.raises(UnknownJobError):
        queue.producer.wait_all([*jobs, Job[EchoArtifact](queue.producer, UUID(int=7), "echo")], 1)


@pytest.mark.usefixtures("_no_polls")
def test_async_producers_wait_as_well(queue: Queue) -> None:
    async def story() -> None:
        async with AsyncProducer(queue.settings) as producer:
            job = await producer.enqueue(Echo(text="ok"))
            jobs = await producer.enqueue_many([Echo(text="ok 1"), Echo(text="hopeless")])
            waiting = asyncio.gather(job.result(PATIENCE), producer.wait_all(jobs, PATIENCE))
            with runner_bench(queue) as bench:
                await asyncio.to_thread(bench.settle)
                one, several = await waiting
            assert one == EchoArtifact(echo="ok")
            assert [each.error is None for each in several] == [True, False]
            with pytest.raises(WaitTimeoutError):
                await producer.wait_all([await producer.enqueue(Echo(text="ok 4"))], 0.1)
            with pytest.raises(ResultTimeoutError):
                await (await producer.enqueue(Echo(text="ok 5"))).result(0.1)

    asyncio.run(story())
