"""Enqueueing inside a caller's transaction: committed and rolled back with it, whatever its search path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.support.echo_kind import Echo
from tests.support.engine_rows import register_first
from tests.support.queue_bench import Queue, eventually, runner_bench, running
from tests.support.worker_fleet import KEY
from thothy_ai.db.states import JobState
from thothy_ai.errors import (
    DatabaseError,
    IdempotencyConflictError,
    InvalidConnectionError,
    MigrationsBehindError,
    UnknownJobError,
)
from thothy_ai.producer import AsyncProducer, EnqueueOptions, Producer
from thothy_ai.queue.dispatcher import Dispatcher

ORDER = text("INSERT INTO orders VALUES (:item)")


@pytest.fixture
def shop(queue: Queue) -> Iterator[Engine]:
    """An application's own engine on the same database: its own tables in `public`, one of them called `job`."""
    engine = create_engine(queue.settings.require_database_url())
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL search_path = public"))
        connection.execute(text("CREATE TABLE orders (item text); CREATE TABLE job (salary int)"))
        connection.execute(text(f"ALTER ROLE thothy IN DATABASE {engine.url.database} SET search_path = public"))
    engine.dispose()
    yield engine
    engine.dispose()


def test_a_transaction_that_rolls_back_leaves_no_job_and_one_that_commits_is_run(queue: Queue, shop: Engine) -> None:
    with shop.connect() as connection:
        connection.execute(ORDER, {"item": "gone"})
        gone = queue.producer.enqueue(Echo(text="ok gone"), connection=connection)
        connection.rollback()
    with shop.begin() as connection:
        connection.execute(ORDER, {"item": "kept"})
        kept = queue.producer.enqueue_many([Echo(text="ok 1"), Echo(text="ok 2")], connection=connection)
        with pytest.raises(UnknownJobError):
            kept[0].state()
        assert queue.rows("SELECT count(*) FROM job") == [(0,)]
    with runner_bench(queue) as bench:
        bench.settle()
    assert {job.state() for job in kept} == {JobState.SUCCEEDED}
    with pytest.raises(UnknownJobError):
        gone.state()
    assert queue.rows("SELECT count(*) FROM job JOIN job_request ON job_id = id") == [(2,)]
    assert queue.rows("SELECT item FROM public.orders") == [("kept",)]


def test_the_dispatcher_is_woken_by_the_commit_and_not_before(queue: Queue, shop: Engine, redis_url: str) -> None:
    register_first(queue)
    slow = queue.settings.model_copy(update={"dispatch_interval_seconds": 3600})
    with Redis.from_url(redis_url) as redis, running(dispatcher := Dispatcher(slow)):
        eventually(lambda: dispatcher.leads)
        with shop.begin() as connection:
            queue.producer.enqueue(Echo(text="ok"), connection=connection)
            queue.rows("SELECT pg_notify('thothy_queued', '')")  # it looks, and sees nothing
            assert redis.llen(KEY) == 0
        eventually(lambda: redis.llen(KEY) == 1)


@pytest.mark.parametrize("scoped", [False, True])
def test_a_session_is_taken_too(queue: Queue, shop: Engine, scoped: bool) -> None:
    session: Any = scoped_session(sessionmaker(shop)) if scoped else Session(shop)
    session.execute(ORDER, {"item": "gone"})
    queue.producer.enqueue(Echo(text="ok"), connection=session)
    session.rollback()
    queue.producer.enqueue(Echo(text="ok"), connection=session)
    session.execute(ORDER, {"item": "kept"})
    session.commit()
    session.close()
    assert queue.rows("SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM public.orders)") == [(1, 1)]


def test_keys_count_inside_and_across_transactions(queue: Queue, shop: Engine) -> None:
    first = queue.producer.enqueue(Echo(text="ok"), idempotency_key="k")
    with shop.begin() as connection:
        again = queue.producer.enqueue(Echo(text="ok"), idempotency_key="k", connection=connection)
        fresh = queue.producer.enqueue(Echo(text="ok"), idempotency_key="new", connection=connection)
        fresh_again = queue.producer.enqueue(Echo(text="ok"), idempotency_key="new", connection=connection)
    assert (again.id, again.existed) == (first.id, True)
    assert (fresh_again.id, fresh.existed, fresh_again.existed) == (fresh.id, False, True)


def test_a_refusal_leaves_the_transaction_as_it_was(queue: Queue, shop: Engine) -> None:
    """All of a batch or none, and what the caller did before stays."""
    queue.producer.enqueue(Echo(text="ok"), idempotency_key="k")
    with shop.begin() as connection:
        connection.execute(ORDER, {"item": "kept"})
        taken = (Echo(text="other"), EnqueueOptions(idempotency_key="k"))
        with pytest.raises(IdempotencyConflictError, match="entry 1"):
            queue.producer.enqueue_many([Echo(text="ok"), taken], connection=connection)
        queue.producer.enqueue(Echo(text="ok after"), connection=connection)
    assert queue.rows("SELECT request->>'text' FROM job_request ORDER BY 1") == [("ok",), ("ok after",)]
    assert queue.rows("SELECT item FROM public.orders") == [("kept",)]


def test_a_transaction_that_has_failed_is_a_typed_error(queue: Queue, shop: Engine) -> None:
    with shop.connect() as connection:
        with pytest.raises(Exception, match="zero"):
            connection.execute(text("SELECT 1 / 0"))
        with pytest.raises(DatabaseError, match="aborted") as caught:
            queue.producer.enqueue(Echo(text="ok"), connection=connection)
        assert caught.value.sqlstate == "25P02"


def test_a_database_without_the_schema_is_a_typed_error(queue: Queue, empty_database: str) -> None:
    elsewhere = create_engine(empty_database)
    with elsewhere.connect() as connection, pytest.raises(MigrationsBehindError):
        queue.producer.enqueue(Echo(text="ok"), connection=connection)
    elsewhere.dispose()


def test_what_has_no_transaction_is_refused(queue: Queue, shop: Engine) -> None:
    with shop.connect() as closed:
        pass
    with (
        shop.connect().execution_options(isolation_level="AUTOCOMMIT") as automatic,
        create_engine("sqlite://").connect() as sqlite,
    ):
        wrong: list[tuple[Any, str]] = [
            (automatic, "autocommit"),
            (sqlite, "sqlite"),
            (closed, "closed"),
            (shop, "Engine is neither"),
            ("thothy", "str is neither"),
            (Session(), "bind"),
        ]
        for given, says in wrong:
            with pytest.raises(InvalidConnectionError, match=f"^connection: .*{says}"):
                queue.producer.enqueue(Echo(text="ok"), connection=given)
    assert queue.rows("SELECT count(*) FROM job") == [(0,)]


def test_the_async_producer_does_the_same(queue: Queue, shop: Engine) -> None:
    async def story() -> None:
        engine = create_async_engine(queue.settings.require_database_url())
        sessions = async_sessionmaker(engine)
        async with AsyncProducer(queue.settings) as producer, engine.connect() as connection:
            await producer.enqueue(Echo(text="ok"), connection=connection)
            await connection.rollback()
            await producer.enqueue_many([Echo(text="ok 1")], connection=connection)
            await connection.commit()
            async with sessions() as session:
                await producer.enqueue(Echo(text="ok"), connection=session)
                await session.rollback()
                await producer.enqueue(Echo(text="ok 2"), connection=session)
                await session.commit()
            scoped: async_scoped_session[AsyncSession] = async_scoped_session(sessions, asyncio.current_task)
            await producer.enqueue(Echo(text="ok 3"), connection=scoped)
            await scoped.commit()
            await scoped.remove()
            wrong: Any = Session(shop)
            with pytest.raises(InvalidConnectionError, match="Session is neither"):
                await producer.enqueue(Echo(text="ok"), connection=wrong)
        await engine.dispose()

    asyncio.run(story())
    assert queue.rows("SELECT request->>'text' FROM job_request ORDER BY 1") == [("ok 1",), ("ok 2",), ("ok 3",)]


def test_tenants_do_not_see_each_other_s_jobs(queue: Queue) -> None:
    job = queue.producer.enqueue(Echo(text="ok"))
    with runner_bench(queue) as bench:
        bench.settle()
    waiting = queue.producer.enqueue(Echo(text="ok"))
    with Producer(queue.settings.model_copy(update={"tenant": "other"})) as other:
        for ours in (job, waiting):
            for act in (other.job, other.cancel, other.snapshot):
                with pytest.raises(UnknownJobError):
                    act(ours.id)
        with pytest.raises(Exception, match="cannot be read"):
            other.artifact(job.refresh())
    assert waiting.state() is JobState.QUEUED
