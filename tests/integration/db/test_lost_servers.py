"""Servers that lose their role, or hang, while connections to them stay open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, text

from tests.conftest import TEMPLATE, Services
from tests.support.echo_kind import Echo
from tests.support.forwarder import Forwarder, forwarder
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue, eventually
from tests.support.server_folder import server_folder
from tests.support.standby import Standby, standby
from tests.support.worker_fleet import WorkerFleet, check_each_once, enqueue
from thothy_ai.db.connect import make_async_engine, make_engine, reaching
from thothy_ai.db.driver import within
from thothy_ai.db.migration import migrate
from thothy_ai.embedded import Postgres
from thothy_ai.errors import DatabaseUnreachableError, JobCancelledError, ResultTimeoutError, WaitTimeoutError
from thothy_ai.jobs import registry
from thothy_ai.producer import AsyncProducer, Producer
from thothy_ai.settings import Settings

LATE = 4.0  # seconds by which a busy machine may miss a bound


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as made:
        yield made


@pytest.fixture
def cluster(clean_environment: None, redis_url: str, folder: Path) -> Iterator[tuple[Settings, Forwarder, Standby]]:
    """A primary with a standby, behind a forwarder that leads to the primary."""
    registry.load_extra(("tests.support.echo_kind",))
    with Postgres(folder / "primary", durable=False) as primary, ExitStack() as stack:
        primary.execute(f"CREATE DATABASE {TEMPLATE}")
        direct = primary.url_of(TEMPLATE)
        migrate(Settings.load(home=folder, database_url=direct))
        (folder / "copy").mkdir()
        replica = stack.enter_context(standby(primary, folder / "copy"))
        name = stack.enter_context(forwarder(folder, primary.port))
        settings = Settings.load(home=folder / "home", database_url=name.url(direct), redis_url=redis_url)
        yield settings.model_copy(update=QUICK), name, replica


@pytest.fixture
def hanging(settings: Settings, services: Services, tmp_path: Path) -> Iterator[tuple[Settings, Forwarder]]:
    registry.load_extra(("tests.support.echo_kind",))
    with forwarder(tmp_path, services.postgres.port) as name:
        url = SecretStr(name.url(settings.require_database_url()))
        yield settings.model_copy(update={"database_url": url}), name


def test_work_goes_on_after_a_failover_that_leaves_connections_open(
    cluster: tuple[Settings, Forwarder, Standby], tmp_path: Path
) -> None:
    settings, name, replica = cluster
    engine = make_engine(settings)
    with Producer(settings) as producer, ExitStack() as stack:
        queue = Queue(settings, engine, producer)
        fleet = WorkerFleet(queue, tmp_path / "fleet.log", stack, lease_seconds=1000, dispatch_timeout_seconds=1000)
        fleet.worker(0.05)
        enqueue(queue, 600)
        eventually(lambda: queue.count("succeeded") > 50)
        [waited_for] = producer.enqueue_many([Echo(text="ok last")])
        replica.promote()
        name.point_to(replica.port)
        switched = time.monotonic()
        before = queue.count("succeeded")
        with Producer(directly(settings, replica)) as other:  # the others may have ended meanwhile
            other.enqueue_many([Echo(text=f"ok more {number}") for number in range(100)])
        eventually(lambda: queue.count("succeeded") > before + 50)
        resumed = time.monotonic() - switched
        assert waited_for.result(timeout=PATIENCE)
        fleet.drained()
        check_each_once(queue, 701)
    engine.dispose()
    assert resumed < 60, f"work went on after {resumed:.1f} s"


def directly(settings: Settings, replica: Standby) -> Settings:
    """Settings that lead to the replica, past the forwarder."""
    url = make_url(settings.require_database_url()).set(port=replica.port)
    return settings.model_copy(update={"database_url": SecretStr(url.render_as_string(hide_password=False))})


def test_of_several_hosts_the_one_that_takes_writes_is_used(cluster: tuple[Settings, Forwarder, Standby]) -> None:
    settings, name, replica = cluster
    url = make_url(settings.require_database_url())
    login = f"{url.username}:{url.password}"
    for hosts in (f"127.0.0.1:{replica.port},127.0.0.1:{name.port}", f"127.0.0.1:9,localhost:{name.port}"):
        several = Settings.load(home=settings.home, database_url=f"postgresql://{login}@{hosts}/{url.database}")
        engine = make_engine(several)
        with reaching(several), engine.connect() as connection:
            assert not connection.scalar(text("SELECT pg_is_in_recovery()"))
        engine.dispose()
    hosts = f"127.0.0.1:9,localhost:{replica.port}"
    read_only = Settings.load(home=settings.home, database_url=f"postgresql://{login}@{hosts}/{url.database}")
    engine = make_engine(read_only)
    with pytest.raises(DatabaseUnreachableError) as caught, reaching(read_only):
        engine.connect()
    assert str(caught.value) == (
        f"Postgres at 127.0.0.1:9, localhost:{replica.port} accepts no writes:"
        f" 127.0.0.1:9: Connection refused; localhost:{replica.port}: session is read-only"
    )


def test_readers_and_waiters_follow_a_failover(cluster: tuple[Settings, Forwarder, Standby]) -> None:
    settings, name, replica = cluster
    where = text("SELECT inet_server_port()")
    reader, writer = make_engine(settings), make_engine(settings)

    async def switch() -> None:
        engine = make_async_engine(settings, application="worker")
        async with engine.connect() as connection:
            await connection.scalar(where)
        replica.promote()
        name.point_to(replica.port)
        async with engine.connect() as connection:
            assert await connection.scalar(where) == replica.port
        await engine.dispose()

    with Producer(settings) as waiting, Producer(settings) as other:
        job = waiting.enqueue(Echo(text="ok"))
        with pytest.raises(ResultTimeoutError):
            job.result(timeout=0.5)  # it listens now
        with reader.connect() as first, writer.connect() as held:
            assert first.scalar(where) != replica.port
            held.scalar(where)
            held.rollback()
            asyncio.run(switch())
            with pytest.raises(DatabaseUnreachableError), reaching(settings):
                held.execute(text("CREATE TABLE written ()"))
        with reader.connect() as again, writer.begin() as elsewhere:
            assert again.scalar(where) == replica.port  # though it has only read
            elsewhere.execute(text("CREATE TABLE written ()"))
        eventually(lambda: _cancelled(other, job.id))
        began = time.monotonic()
        with pytest.raises(JobCancelledError):
            job.result(timeout=PATIENCE)
        assert time.monotonic() - began < 30
    reader.dispose()
    writer.dispose()


def _cancelled(producer: Producer, job_id: UUID) -> bool:
    try:
        return producer.cancel(job_id)
    except DatabaseUnreachableError:
        return False


@pytest.mark.parametrize("timeout", [0, 1.5])
def test_timeouts_are_kept_by_a_server_that_hangs(hanging: tuple[Settings, Forwarder], timeout: float) -> None:
    settings, name = hanging
    with Producer(settings) as producer:
        jobs = producer.enqueue_many([Echo(text="ok"), Echo(text="ok ok")])
        for calls in range(2):  # with a connection, and without
            with name.stopped():
                began = time.monotonic()
                with pytest.raises(ResultTimeoutError, match="unknown state" if calls else "state"):
                    jobs[0].result(timeout=timeout)
                assert timeout <= time.monotonic() - began < timeout + LATE
                began = time.monotonic()
                with pytest.raises(WaitTimeoutError, match="2 of 2"):
                    producer.wait_all(jobs, timeout=timeout)
                assert timeout <= time.monotonic() - began < timeout + LATE


@pytest.mark.parametrize("timeout", [0, 1.5])
def test_async_timeouts_are_kept_by_a_server_that_hangs(hanging: tuple[Settings, Forwarder], timeout: float) -> None:
    settings, name = hanging

    async def wait() -> None:
        producer = AsyncProducer(settings)
        job = await producer.enqueue(Echo(text="ok"))
        for _ in range(2):
            with name.stopped():
                began = time.monotonic()
                with pytest.raises(ResultTimeoutError):
                    await job.result(timeout=timeout)
                assert timeout <= time.monotonic() - began < timeout + LATE
                began = time.monotonic()
                with pytest.raises(WaitTimeoutError):
                    await producer.wait_all([job], timeout=timeout)
                assert timeout <= time.monotonic() - began < timeout + LATE
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):  # a caller's own
                        await producer.cancel(job.id)
                assert time.monotonic() - began < 0.5 + LATE
        await producer.close()

    asyncio.run(wait())


def test_more_waiters_than_connections_keep_their_timeouts(hanging: tuple[Settings, Forwarder]) -> None:
    settings, name = hanging

    async def wait() -> list[float]:
        producer = AsyncProducer(settings)
        job = await producer.enqueue(Echo(text="ok"))

        async def one(timeout: float) -> float:  # noqa: ASYNC109 - what is tested
            began = time.monotonic()
            with pytest.raises(ResultTimeoutError):
                await job.result(timeout=timeout)
            return time.monotonic() - began - timeout

        with name.stopped():
            late = await asyncio.gather(*(one(4 if number < 20 else 2) for number in range(40)))
        await producer.close()
        return late

    assert max(asyncio.run(wait())) < LATE


def test_a_statement_is_not_waited_for_beyond_its_connections_limit(hanging: tuple[Settings, Forwarder]) -> None:
    settings, name = hanging
    engine = make_engine(settings, answer_seconds=0.5)
    with engine.connect() as connection:
        connection.scalar(text("SELECT 1"))
        with name.stopped():
            began = time.monotonic()
            with pytest.raises(DatabaseUnreachableError, match=r"no answer within 0\.5 s"), reaching(settings):
                connection.scalar(text("SELECT 1"))
            assert 0.5 <= time.monotonic() - began < 0.5 + LATE
    with engine.connect() as connection:
        with within(5):
            assert connection.scalar(text("SELECT pg_sleep(0.7)::text")) == ""
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()
