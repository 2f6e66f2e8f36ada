"""A real pgbouncer: in session mode every process works; in transaction mode producers do, and all else refuses it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.integration.producer.test_waiting import LISTENERS, aside
from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.pgbouncer import pgbouncer
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.worker_fleet import PATIENT, WorkerFleet, check_each_once
from thothy_ai.db.connect import make_async_engine, make_engine
from thothy_ai.db.pooler import refuse_pooler
from thothy_ai.errors import ConfigError, PoolerError
from thothy_ai.producer import AsyncProducer, Producer, listener, snapshot
from thothy_ai.settings import Settings

MANY = 12  # the driver prepares a statement at its fifth execution
PATH = "SET search_path = thothy"


def through(queue: Queue, url: str, pooler: str = "transaction") -> Settings:
    given = queue.settings.model_dump(exclude_unset=True)
    return Settings.load(**{**given, "database_url": url, "database_pooler": pooler})


@pytest.fixture
def pooled(queue: Queue, tmp_path: Path) -> Iterator[Settings]:
    with pgbouncer(queue.settings.require_database_url(), tmp_path) as url:
        yield through(queue, url)


def test_producers_enqueue_follow_and_cancel(queue: Queue, pooled: Settings) -> None:
    with Producer(pooled) as producer:

        def enqueue(number: int) -> None:
            for turn in range(MANY):
                producer.enqueue(Echo(text=f"ok {number} {turn}"), idempotency_key=f"{number} {turn}")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(enqueue, range(4)))
        assert producer.enqueue(Echo(text="ok 0 0"), idempotency_key="0 0").existed
        job, unwanted = producer.enqueue_many([Echo(text="ok"), Echo(text="ok")])
        assert unwanted.cancel()
        with runner_bench(queue) as bench:
            bench.settle()
        assert [job.result(1) for _ in range(MANY)] == [EchoArtifact(echo="ok")] * MANY
    assert queue.count("succeeded") == 4 * MANY + 1


def test_async_producers_do_too(queue: Queue, pooled: Settings) -> None:
    async def story() -> None:
        async with AsyncProducer(pooled) as producer:
            jobs = await asyncio.gather(*(producer.enqueue(Echo(text=f"ok {turn}")) for turn in range(MANY)))
            assert [await job.cancel() for job in jobs] == [True] * MANY

    asyncio.run(story())
    assert queue.count("cancelled") == MANY


def test_an_application_s_transaction_goes_through_it(queue: Queue, pooled: Settings) -> None:
    application = create_engine(pooled.require_database_url(), connect_args={"prepare_threshold": None})
    with Producer(pooled) as producer:
        for turn in range(MANY):
            with application.connect() as connection:
                producer.enqueue(Echo(text=f"ok {turn}"), connection=connection)
                if turn % 2:
                    connection.commit()
    application.dispose()
    assert queue.count("queued") == MANY // 2


def test_a_pooler_that_was_not_declared_is_named(queue: Queue, pooled: Settings) -> None:
    undeclared = pooled.model_copy(update={"database_pooler": "none"})
    with Producer(undeclared) as producer, pytest.raises(PoolerError, match="THOTHY_DATABASE_POOLER=transaction"):
        producer.enqueue(Echo(text="ok"))
    with pytest.raises(PoolerError):
        refuse_pooler(undeclared)


@pytest.mark.parametrize("command", [["worker"], ["dispatcher"], ["reaper"], ["migrate"], ["jobs", "list"]])
@pytest.mark.parametrize("declared", ["transaction", "none"])
def test_everything_else_refuses_it(pooled: Settings, command: list[str], declared: str) -> None:
    environment = {**os.environ, **pooled.environment(), "THOTHY_DATABASE_POOLER": declared}
    done = subprocess.run(
        [*THOTHY, *command], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode != 0
    assert "; set THOTHY_DATABASE_URL to the address of Postgres itself" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("query", ["", PATH], ids=["no search path", "search path"])
def test_one_that_drops_our_options_is_found_out(queue: Queue, tmp_path: Path, query: str) -> None:
    """By the search path, or else by two open connections that share one of Postgres."""
    url = queue.settings.require_database_url()
    with pgbouncer(url, tmp_path, ignore="options", query=query) as pooled, pytest.raises(PoolerError):
        refuse_pooler(through(queue, pooled, "none"))


def test_session_mode_and_no_pooler_are_fine(queue: Queue, tmp_path: Path) -> None:
    refuse_pooler(queue.settings)
    url = queue.settings.require_database_url()
    with pgbouncer(url, tmp_path, mode="session", ignore="options", query=PATH) as pooled:
        settings = through(queue, pooled, "none")
        refuse_pooler(settings)
        engine = make_engine(settings)
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT count(*) FROM job")) == 0
        engine.dispose()


@pytest.fixture
def sessions(queue: Queue, tmp_path: Path) -> Iterator[Settings]:
    """In turn, other clients have had its connections to Postgres."""
    with pgbouncer(queue.settings.require_database_url(), tmp_path, mode="session", size=8) as url:
        yield through(queue, url, "session")


def test_producers_in_session_mode_are_notified_and_prepare_statements(
    queue: Queue, sessions: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((snapshot, "LISTENING_DELAY"), (listener, "IDLE_SECONDS")):
        monkeypatch.setattr(module, name, 3600.0)  # no polls
    with Producer(sessions) as producer:
        jobs = [producer.enqueue(Echo(text=f"ok {turn}")) for turn in range(MANY)]
        prepared = text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO thothy.job%'")
        with producer._engine.connect() as connection:
            assert connection.scalar(prepared) == 1
        waiting = aside(lambda: producer.wait_all(jobs))
        result = aside(jobs[0].result)
        eventually(lambda: queue.rows(LISTENERS)[0][0] == 1)
        with runner_bench(queue) as bench:
            bench.settle()
        assert result.result(PATIENCE) == EchoArtifact(echo="ok 0")
        assert [job.result() for job in waiting.result(PATIENCE)] == [EchoArtifact(echo=f"ok {n}") for n in range(MANY)]


def test_connections_in_session_mode_have_our_search_path_after_others_had_them(
    queue: Queue, sessions: Settings
) -> None:
    refuse_pooler(sessions)
    for _ in range(3):
        engine = make_engine(sessions)
        with engine.connect() as connection:
            connection.rollback()
            assert connection.scalar(text("SHOW search_path")) == sessions.database_schema
        engine.dispose()

    async def path() -> str:
        engine = make_async_engine(sessions, application="worker")
        async with engine.connect() as connection:
            await connection.rollback()
            found = str(await connection.scalar(text("SHOW search_path")))
        await engine.dispose()
        return found

    assert asyncio.run(path()) == sessions.database_schema


def test_the_whole_service_works_in_session_mode(queue: Queue, tmp_path: Path) -> None:
    direct = queue.settings.require_database_url()
    with pgbouncer(direct, tmp_path, mode="session", size=40) as url, ExitStack() as stack:
        sessions = through(queue, url, "session")
        with Producer(sessions) as producer:
            behind = Queue(sessions, queue.engine, producer)
            fleet = WorkerFleet(behind, tmp_path / "log", stack, **PATIENT, database_pooler="session")
            engine_url = f"unix://{tmp_path}/engine.sock"
            fleet.null_engine(engine_url, 0.01)
            fleet.sharing_worker(engine_url)
            jobs = producer.enqueue_many([Echo(text=f"ok {turn}") for turn in range(MANY)])
            producer.wait_all(jobs, PATIENCE)
        check_each_once(queue, MANY)
        wanted = {"thothy-dispatcher", "thothy-reaper", "thothy-worker", "thothy-registrar"}
        connected = "SELECT DISTINCT application_name FROM pg_stat_activity"
        eventually(lambda: wanted <= {row.application_name for row in queue.rows(connected)})


@pytest.mark.parametrize("command", [["worker"], ["dispatcher"], ["reaper"], ["migrate"], ["jobs", "list"]])
def test_one_in_transaction_mode_that_was_declared_as_session_is_found_out(
    pooled: Settings, command: list[str]
) -> None:
    environment = {**os.environ, **pooled.environment(), "THOTHY_DATABASE_POOLER": "session"}
    done = subprocess.run(
        [*THOTHY, *command], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode != 0
    assert "is a pooler in transaction mode" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_setting_has_three_values(clean_environment: None) -> None:
    with pytest.raises(ConfigError, match="THOTHY_DATABASE_POOLER: must be 'none', 'session' or 'transaction'"):
        Settings.load(database_pooler="statement")
