"""Upgrades: the next migration on a filled database while it works, and what must not change between two releases."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from pydantic import ValidationError
from redis import Redis
from sqlalchemy import Connection, create_engine, text

from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.engine_rows import register_first
from tests.support.next_revision import next_revision
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue, eventually, runner_bench, running
from tests.support.worker_fleet import KEY, WorkerFleet
from thothy_ai.admin import jobs as admin_jobs
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.db import online
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import alembic_config, migrate
from thothy_ai.db.revisions import code_revision
from thothy_ai.db.schema import check_schema
from thothy_ai.errors import DatabaseError
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings

# A message as it is published, byte for byte except for the ids: processes of two releases run side by side.
MESSAGE = """{"body": "%(body)s", "content-encoding": "utf-8", "content-type": "application/json",
 "headers": {"lang": "py", "task": "thothy.run", "id": "%(job)s.1", "shadow": null, "eta": null, "expires": null,
 "group": null, "group_index": null, "retries": 0, "timelimit": [null, null], "root_id": "%(job)s.1",
 "parent_id": null, "argsrepr": "%(job)s.1", "kwargsrepr": "{}", "origin": "gen1@box", "ignore_result": false,
 "replaced_task_nesting": 0, "stamped_headers": null, "stamps": {}%(more)s},
 "properties": {"correlation_id": "%(job)s.1", "reply_to": "", "delivery_mode": 2,
 "delivery_info": {"exchange": "", "routing_key": "jobs@first"}, "priority": 0, "body_encoding": "base64",
 "delivery_tag": "%(tag)s"}}"""
STATES = ("queued", "dispatched", "running", "succeeded", "dead", "cancelled", "expired")
# Rows as the release before wrote them: the columns of the baseline.
ROWS = """
    INSERT INTO job (id, tenant, kind, state, priority, source_key, idempotency_key, request_digest, attempt, failures,
                     max_attempts, dispatch_no, dispatched_at, worker, lease_until, started_at, finished_at, reason)
    SELECT uuidv7(), 'default', 'echo', state, n % 3, 's', state || n, 'd', 1, 0, 3, 1, now(),
           CASE WHEN state = 'running' THEN 'gone' END, CASE WHEN state = 'running' THEN now() END, now(),
           CASE WHEN state IN ('succeeded', 'dead', 'cancelled', 'expired') THEN now() END,
           CASE WHEN state = 'dead' THEN 'lease_lost' END
    FROM unnest(CAST(:states AS text[])) AS state, generate_series(1, :jobs) AS n
"""
REQUESTS = """INSERT INTO job_request SELECT id, '{"text": "ok old"}' FROM job"""
ATTEMPTS = """
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, started_at, outcome)
    SELECT id, 1, tenant, kind, 'gone', now(), 'failed' FROM job WHERE state IN ('dead', 'succeeded')
"""
SUMS = """
    SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM job_request), (SELECT count(*) FROM attempt),
           (SELECT md5(string_agg(concat_ws('|', id, state, priority, attempt, worker, reason), ',' ORDER BY id))
            FROM job)
"""
# A writer gives up only where a test would: nothing here assumes how fast the machine is.
WRITE = f"SET LOCAL lock_timeout = '{PATIENCE}s'; UPDATE job SET priority = 2 WHERE state = 'queued'"


@pytest.fixture
def old(empty_database: str, redis_url: str, tmp_path: Path, clean_environment: None) -> Iterator[Queue]:
    """A database of the newest release, while jobs are running; the code is that of the next one.

    Its connections have the schema as their search path, and no other option of the service.
    """
    registry.load_extra(("tests.support.echo_kind",))
    settings = Settings.load(database_url=empty_database, redis_url=redis_url, **QUICK)
    migrate(settings)
    engine = create_engine(empty_database, connect_args={"options": f"-c search_path={settings.database_schema}"})
    with Producer(settings) as producer, next_revision(tmp_path):
        queue = Queue(settings, engine, producer)
        queue.rows(ROWS, states=list(STATES), jobs=200)
        queue.rows(REQUESTS)
        queue.rows(ATTEMPTS)
        yield queue
    engine.dispose()


def downgrade(settings: Settings, revision: str) -> None:
    engine = make_engine(settings)
    with engine.connect() as connection:
        command.downgrade(alembic_config(connection, settings.database_schema), revision)
    engine.dispose()


@contextmanager
def holding(queue: Queue, statement: str) -> Iterator[Connection]:
    """An open transaction that has run this statement."""
    with queue.engine.connect() as connection:
        connection.execute(text(statement))
        yield connection
        connection.rollback()


def test_up_down_and_up_keep_every_row_of_a_filled_database(old: Queue) -> None:
    before = old.rows(SUMS)
    assert migrate(old.settings) == code_revision()
    assert old.rows(SUMS) == before
    downgrade(old.settings, "-1")
    assert old.rows(SUMS) == before
    assert migrate(old.settings) == code_revision() == check_schema(old.settings)
    assert old.rows(SUMS) == before
    assert old.rows("SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


def test_old_rows_run_under_new_code(old: Queue) -> None:
    migrate(old.settings)
    with runner_bench(old) as bench:
        old.ask("queue/reap_leases", retry_base_seconds=0, retry_cap_seconds=0)
        old.rows("UPDATE job SET state = 'queued' WHERE state = 'dispatched'")
        bench.settle()
    assert old.count("succeeded") == 200 * 4
    [dead] = old.rows("SELECT id FROM job WHERE state = 'dead' LIMIT 1")
    assert admin_jobs.redrive(old.engine, [dead.id], note="after the upgrade") == {dead.id}
    assert admin_jobs.show_job(old.engine, dead.id)["request"] == {"text": "ok old"}
    assert drain_report(old.engine, datetime.now(UTC) - timedelta(days=1))


def test_migrating_waits_for_no_statement_and_no_statement_waits_for_it(old: Queue) -> None:
    """A long transaction holds a row throughout; producers and workers go on while the indexes are built."""
    done = threading.Event()

    def upgrade() -> None:
        migrate(old.settings)
        done.set()

    thread = threading.Thread(target=upgrade)
    with holding(old, "UPDATE job SET priority = 1 WHERE state = 'dead'"):
        thread.start()
        eventually(lambda: old.rows("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'"))
        old.rows(WRITE)
        assert not done.is_set()
    thread.join(PATIENCE)
    assert done.is_set()
    assert check_schema(old.settings) == code_revision()


def test_behind_a_migration_that_waits_for_a_reader_no_statement_waits_for_long(
    old: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report reads `job` throughout; a new column needs the table for itself, and asks again and again.

    The reader holds its lock throughout, so that only the migration's own limit ends the wait of those behind it.
    """
    assert online.LOCK_SECONDS < 0.6
    monkeypatch.setattr(online, "PATIENCE_SECONDS", PATIENCE)
    thread = threading.Thread(target=migrate, args=(old.settings,))
    asks = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE job%' AND wait_event_type = 'Lock'"
    with holding(old, "SELECT count(*) FROM job"):
        thread.start()
        for _ in range(3):
            eventually(lambda: old.rows(asks))
            old.rows(WRITE)
            eventually(lambda: not old.rows(asks))
        assert thread.is_alive()
    thread.join(PATIENCE)
    assert check_schema(old.settings) == code_revision()


def test_a_lock_that_cannot_be_acquired_ends_a_migration_cleanly(old: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "PATIENCE_SECONDS", 0.1)
    with (
        holding(old, "LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"),
        pytest.raises(DatabaseError, match="lock"),
    ):
        migrate(old.settings)
    assert migrate(old.settings) == code_revision()


def test_an_index_that_was_left_half_built_is_built_anew(old: Queue) -> None:
    """As when the migrating process was killed."""
    [(before,)] = old.rows("SELECT version_num FROM alembic_version")
    migrate(old.settings)
    old.rows("UPDATE alembic_version SET version_num = :before", before=before)
    old.rows("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_job_next'::regclass")
    assert migrate(old.settings) == code_revision()
    assert old.rows("SELECT 1 FROM pg_index WHERE NOT indisvalid") == []


def test_several_machines_migrate_at_once(old: Queue, tmp_path: Path) -> None:
    environment = {**os.environ, **old.settings.environment()}
    command = [sys.executable, "-m", "tests.support.next_revision"]
    folders = [str(tmp_path / str(number)) for number in range(3)]
    machines = [subprocess.Popen([*command, each], env=environment, stdout=subprocess.PIPE) for each in folders]
    for machine in machines:
        said, _ = machine.communicate(timeout=PATIENCE)
        assert said.decode() == code_revision()


@pytest.mark.parametrize("more", ["", ', "trace": {"id": "0af7"}, "thothy_version": "9.1"'])
def test_a_message_of_another_release_is_run_and_unknown_fields_are_ignored(
    queue: Queue, patient_fleet: WorkerFleet, redis_url: str, more: str
) -> None:
    """And not held for lost, however long its worker takes to claim: nothing would dispatch it again."""
    queue.rows("UPDATE queue_control SET paused = true")  # the dispatcher stays out of it
    [job_id] = queue.enqueue("ok")
    queue.rows("UPDATE job SET state = 'dispatched', dispatch_no = 1, dispatched_at = now(), engine_name = 'first'")
    arguments = [[str(job_id), 1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    body = base64.b64encode(json.dumps(arguments).encode()).decode()
    with Redis.from_url(redis_url) as redis:
        redis.lpush(KEY, MESSAGE % {"body": body, "job": job_id, "tag": "t", "more": more})
        broker = Broker(queue.settings)
        assert broker.waiting("first").ordinary == {Hint(job_id, 1)}  # the reaper does not hold it for lost
        broker.close()
    patient_fleet.worker()
    patient_fleet.drained()
    assert (queue.job(job_id).state, queue.job(job_id).dispatch_no) == ("succeeded", 1)


def test_what_is_published_has_the_fields_of_that_message(queue: Queue, redis_url: str) -> None:
    """Workers of the release before must read it, too: they run beside new ones while a release is rolled out."""
    queue.enqueue("ok")
    register_first(queue)
    with Redis.from_url(redis_url) as redis, running(Dispatcher(queue.settings)):
        eventually(lambda: redis.llen(KEY) == 1)
        found = json.loads(redis.lindex(KEY, 0))
    first = json.loads(MESSAGE % {"body": "", "job": "x", "tag": "t", "more": ""})
    assert found.keys() == first.keys()
    assert found["headers"].keys() >= first["headers"].keys() - {"stamped_headers", "stamps"}
    assert found["properties"].keys() == first["properties"].keys()
    assert (found["content-type"], found["headers"]["task"]) == ("application/json", "thothy.run")


def test_json_columns_with_fields_of_another_version_are_read(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    queue.rows("""UPDATE job_request SET request = request || '{"of_a_later_version": 1}'""")
    with runner_bench(queue) as bench:
        bench.settle()
    assert queue.job(job_id).state == "succeeded"
    queue.rows("""UPDATE artifact SET body = body || '{"of_a_later_version": 1}'""")
    assert admin_jobs.show_job(queue.engine, job_id)["request"]["of_a_later_version"] == 1
    assert queue.producer.job(job_id).result(1) == EchoArtifact(echo="ok")
    with pytest.raises(ValidationError):
        Echo.model_validate({"text": "ok", "of_a_later_version": 1})  # what comes in now is still checked
