"""A tenant's database role enqueues, follows, changes and cancels its tenant's jobs. All else is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from tests.support.echo_kind import Echo, EchoArtifact
from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.db.roles import create_role, drop_role, list_roles, written_columns
from thothy_ai.db.states import JobState
from thothy_ai.errors import JobCancelledError, PermissionDeniedError, UnknownJobError
from thothy_ai.producer import Job, Producer
from thothy_ai.settings import Settings

POLICIES = "SELECT tablename, policyname FROM pg_policies ORDER BY 1, 2"


@dataclass
class Tenant:
    """A producer with a role of its own, and that role's plain connections, whose search path is anything."""

    producer: Producer
    engine: Engine
    role: str

    def tries(self, sql: str, **parameters: object) -> list[object]:
        """The rows that a statement returns to the role, in a transaction that is rolled back."""
        with self.engine.connect() as connection:
            done = connection.execute(text(sql), parameters)
            return [tuple(row) for row in done] if done.returns_rows else [done.rowcount]

    def refused(self, sql: str, **parameters: object) -> str:
        with pytest.raises(DBAPIError) as caught:
            self.tries(sql, **parameters)
        return str(caught.value.orig)


@pytest.fixture
def acme(queue: Queue) -> Iterator[Tenant]:
    role = create_role(queue.engine, f"acme_{uuid4().hex[:8]}", "acme")
    url = make_url(queue.settings.require_database_url()).set(username=role.name, password=role.password)
    plain = url.render_as_string(hide_password=False)
    settings = Settings.load(**{**queue.settings.model_dump(exclude_unset=True), "database_url": plain}).model_copy(
        update={"tenant": "acme"}
    )
    engine = create_engine(url)
    with Producer(settings) as producer:
        yield Tenant(producer, engine, role.name)
    engine.dispose()
    drop_role(queue.engine, role.name)


@pytest.fixture
def theirs(queue: Queue) -> Iterator[Job[EchoArtifact]]:
    """A job of another tenant."""
    with Producer(queue.settings.model_copy(update={"tenant": "other"})) as producer:
        yield producer.enqueue(Echo(text="ok theirs"), idempotency_key="secret")


def test_a_role_enqueues_follows_and_cancels_its_own(queue: Queue, acme: Tenant) -> None:
    jobs = acme.producer.enqueue_many([Echo(text="ok 1"), Echo(text="ok 2")])
    first = acme.producer.enqueue(Echo(text="ok 3"), idempotency_key="k")
    assert acme.producer.enqueue(Echo(text="ok 3"), idempotency_key="k").id == first.id
    assert acme.producer.job(jobs[0].id).state() is JobState.QUEUED
    assert jobs[1].cancel()
    with runner_bench(queue) as bench:
        bench.settle()
    assert jobs[0].result(1) == EchoArtifact(echo="ok 1")
    with pytest.raises(JobCancelledError):
        jobs[1].result(1)
    assert not jobs[0].cancel()
    assert queue.rows("SELECT count(*) FROM job_request") == [(3,)]
    assert queue.rows("SELECT job_id, event FROM job_event") == [(jobs[1].id, "cancelled")]


def test_a_running_job_is_asked_to_stop(queue: Queue, acme: Tenant) -> None:
    job = acme.producer.enqueue(Echo(text="ok"))
    queue.rows("UPDATE job SET state = 'running', worker = 'w', lease_until = now(), started_at = now()")
    assert job.cancel()
    assert job.state() is JobState.RUNNING
    assert queue.job(job.id).cancel_requested


def test_a_waiting_job_is_changed_and_a_running_one_is_not(queue: Queue, acme: Tenant) -> None:
    job = acme.producer.enqueue(Echo(text="ok"))
    for state in ("queued", "dispatched"):
        queue.rows(f"UPDATE job SET state = '{state}', dispatched_at = now(), reason = 'rejected'")
        assert job.change(priority=5, deadline=None, not_before=datetime.now(UTC) + timedelta(hours=1))
        assert (queue.job(job.id).state, queue.job(job.id).priority) == ("queued", 5)
    queue.rows("UPDATE job SET state = 'running', worker = 'w', lease_until = now(), started_at = now()")
    assert not job.change(priority=6)
    assert "violates" in acme.refused("UPDATE thothy.job SET state = 'queued'")
    assert "violates" in acme.refused("UPDATE thothy.job SET priority = 6")


def test_its_producer_is_refused_the_tenant_of_others(acme: Tenant, theirs: Job[EchoArtifact]) -> None:
    with Producer(acme.producer.settings.model_copy(update={"tenant": "other"})) as spoofed:
        for options in ({}, {"idempotency_key": "secret"}, {"idempotency_key": "unknown"}):
            with pytest.raises(PermissionDeniedError, match="THOTHY_TENANT is 'other'"):
                spoofed.enqueue(Echo(text="ok"), **options)
        for act in (spoofed.job, spoofed.cancel, spoofed.snapshot, partial(spoofed.change, priority=5)):
            with pytest.raises(UnknownJobError):
                act(theirs.id)


def test_sql_of_its_own_reaches_no_job_of_others(queue: Queue, acme: Tenant, theirs: Job[EchoArtifact]) -> None:
    with runner_bench(queue) as bench:
        bench.settle()
    before = queue.rows("SELECT * FROM job")
    for setting in ("app.tenant", "thothy.tenant"):
        assert acme.tries(f"SELECT set_config('{setting}', 'other', false), (SELECT count(*) FROM thothy.job)") == [
            ("other", 0)
        ]
    assert acme.tries("SELECT count(*) FROM thothy.job") == [(0,)]
    assert acme.tries("SELECT count(*) FROM thothy.artifact") == [(0,)]
    assert acme.tries("UPDATE thothy.job SET cancel_requested = true, state = 'cancelled', finished_at = now()") == [0]
    assert acme.tries("UPDATE thothy.job SET priority = 100") == [0]
    assert acme.tries("SELECT thothy.thothy_is_own_job(:id)", id=theirs.id) == [(False,)]
    for table in (
        "attempt", "job_event", "job_request", "engine_session", "usage_by_hour", "queue_control", "queue_pause",
    ):  # fmt: skip
        assert "permission denied" in acme.refused(f"SELECT * FROM thothy.{table}")
    assert "permission denied" in acme.refused("SELECT * FROM thothy.alembic_version")
    partition = queue.rows("SELECT relname FROM pg_class WHERE relname ~ '^artifact_2' AND relkind = 'r' LIMIT 1")
    assert "permission denied" in acme.refused(f"SELECT * FROM thothy.{partition[0].relname}")
    for sql in (
        "DELETE FROM thothy.job",
        "TRUNCATE thothy.job",
        "UPDATE thothy.job SET tenant = 'acme'",
        "UPDATE thothy.artifact SET tenant = 'acme'",
        "UPDATE thothy.queue_control SET paused = true",
        "DELETE FROM thothy.queue_pause",
        "INSERT INTO thothy.queue_pause (scope, name, paused_by) VALUES ('tenant', 'other', 'me')",
        "CREATE TABLE thothy.mine ()",
        "ALTER TABLE thothy.job DISABLE ROW LEVEL SECURITY",
        f"DROP POLICY producer_select_{acme.role} ON thothy.job",
        "CREATE POLICY all_of_it ON thothy.job USING (true)",
        f"SET ROLE {queue.settings.database_schema}",
        "SET LOCAL search_path = thothy; SELECT thothy_ensure_partitions(9)",
    ):
        assert any(word in acme.refused(sql) for word in ("permission denied", "must be owner")), sql
    assert queue.rows("SELECT * FROM job") == before


WRITE = """
    INSERT INTO thothy.job (id, tenant, kind, source_key, request_digest, max_attempts, idempotency_key {columns})
    VALUES (:id, :tenant, 'echo', 's', 'd', 3, :key {values}) {more}
"""


def _write(columns: str = "", values: str = "", more: str = "ON CONFLICT DO NOTHING") -> str:
    return WRITE.format(columns=columns, values=values, more=more)


@pytest.mark.parametrize("key", ["secret", "unknown"])
def test_a_key_of_another_tenant_does_not_show(acme: Tenant, theirs: Job[EchoArtifact], key: str) -> None:
    """Taken or not, the same error comes, and the same answer under its own name."""
    said = acme.refused(_write(), id=uuid4(), tenant="other", key=key)
    assert "new row violates row-level security policy" in said
    assert key not in said
    assert acme.tries(_write(), id=uuid4(), tenant="acme", key=key) == [1]


def test_its_own_jobs_begin_queued_and_end_only_cancelled(queue: Queue, acme: Tenant) -> None:
    mine: UUID = acme.producer.enqueue(Echo(text="ok")).id
    new = {"id": uuid4(), "tenant": "acme", "key": "k"}
    for column, value in (("state", "'succeeded'"), ("attempt", "9"), ("failures", "9"), ("enqueued_at", "now()")):
        assert "permission denied" in acme.refused(_write(f", {column}", f", {value}"), **new)
    for change in (
        "state = 'succeeded', finished_at = now()",
        "state = 'succeeded', finished_at = now(), cancel_requested = true",
        "state = 'running', cancel_requested = true",
        "reason = 'mine'",
    ):
        assert "violates" in acme.refused(f"UPDATE thothy.job SET {change}")
    assert acme.tries("UPDATE thothy.job SET cancel_requested = true, state = 'cancelled', finished_at = now()") == [1]
    queue.rows("UPDATE job SET state = 'succeeded', finished_at = now()")
    assert acme.tries("UPDATE thothy.job SET cancel_requested = true, state = 'cancelled'") == [0]
    assert "permission denied" in acme.refused("DELETE FROM thothy.job WHERE id = :id", id=mine)


def test_requests_and_events_are_written_for_its_own_jobs_only(
    queue: Queue, acme: Tenant, theirs: Job[EchoArtifact]
) -> None:
    queue.rows("DELETE FROM job_request")
    mine = acme.producer.enqueue(Echo(text="ok"), idempotency_key="k")
    request = "INSERT INTO thothy.job_request (job_id, request) VALUES (:id, '{}')"
    event = "INSERT INTO thothy.job_event (job_id, event, detail) VALUES (:id, :event, 'x')"
    assert "row-level security" in acme.refused(request, id=theirs.id)
    assert "row-level security" in acme.refused(event, id=theirs.id, event="cancelled")
    assert "row-level security" in acme.refused(event, id=mine.id, event="retried")
    assert acme.tries(event, id=mine.id, event="cancelled") == [1]


LONG = "ok" + " a long source" * 100


def test_a_long_text_is_its_own_even_if_another_tenant_has_stored_it(queue: Queue, acme: Tenant) -> None:
    """It sees no text of others, nor that there is one; it cannot refer to one, and reads none back."""
    with Producer(queue.settings.model_copy(update={"tenant": "other"})) as other:
        other.enqueue(Echo(text=LONG))
    [(theirs,)] = queue.rows("SELECT id FROM source_text")
    assert acme.tries("SELECT count(id) FROM thothy.source_text") == [(0,)]
    jobs = [acme.producer.enqueue(Echo(text=LONG)), *acme.producer.enqueue_many([Echo(text=LONG)])]
    assert queue.rows("SELECT tenant, count(*) FROM source_text GROUP BY tenant ORDER BY 1") == [
        ("acme", 1), ("other", 1),
    ]  # fmt: skip
    queue.rows("DELETE FROM job_request WHERE job_id = :id", id=jobs[0].id)
    request = "INSERT INTO thothy.job_request (job_id, request, text_field, text_id) VALUES (:id, '{}', 'text', :text)"
    assert "row-level security" in acme.refused(request, id=jobs[0].id, text=theirs)
    [(mine,)] = acme.tries("SELECT id FROM thothy.source_text")
    assert acme.tries(request, id=jobs[0].id, text=mine) == [1]
    stored = (
        "INSERT INTO thothy.source_text (id, tenant, digest, content) VALUES (gen_random_uuid(), 'other', 'd', 'x')"
    )
    assert "row-level security" in acme.refused(stored)
    assert "row-level security" in acme.refused("UPDATE thothy.source_text SET digest = 'x'")
    for sql in (
        "SELECT content FROM thothy.source_text",
        "UPDATE thothy.source_text SET content = 'x'",
        "DELETE FROM thothy.source_text",
        "SELECT note FROM thothy.queue_control",
        "UPDATE thothy.queue_control SET paused = true",
    ):
        assert "permission denied" in acme.refused(sql)


def test_an_application_s_role_that_is_granted_it_is_held_to_it(queue: Queue, acme: Tenant) -> None:
    shop = f"shop_{uuid4().hex[:8]}"
    with queue.engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {shop} NOLOGIN"))
        connection.execute(text(f"GRANT {acme.role} TO {shop}"))
    try:
        with queue.engine.connect() as connection:
            connection.execute(text(f"SET LOCAL ROLE {shop}; SET LOCAL search_path = pg_catalog"))
            job = acme.producer.enqueue(Echo(text="ok"), connection=connection)
            with pytest.raises(PermissionDeniedError), Producer(queue.settings) as producer:
                producer.enqueue(Echo(text="ok"), connection=connection)
            connection.commit()
        assert job.state() is JobState.QUEUED
        assert queue.rows("SELECT tenant FROM job") == [("acme",)]
    finally:
        queue.rows(f"DROP ROLE {shop}")


def test_the_owner_does_not_pay_for_the_policies(queue: Queue, acme: Tenant) -> None:
    asked = "EXPLAIN (COSTS OFF) SELECT state FROM {} WHERE id = '01890000-0000-7000-8000-000000000001'"
    assert "tenant" not in str(queue.rows(asked.format("job")))
    assert "tenant" in str(acme.tries(asked.format("thothy.job")))


def test_migrating_gives_roles_what_they_lack_and_dropping_leaves_nothing(queue: Queue, acme: Tenant) -> None:
    policies = queue.rows(POLICIES)
    assert [(role.name, role.tenant, role.login) for role in _roles(queue)] == [(acme.role, "acme", True)]
    queue.rows(f"DROP POLICY producer_insert_{acme.role} ON job_request")
    queue.rows(f"REVOKE INSERT (kind) ON job FROM {acme.role}")
    with pytest.raises(PermissionDeniedError):
        acme.producer.enqueue(Echo(text="ok"))
    migrate(queue.settings)
    assert queue.rows(POLICIES) == policies
    acme.producer.enqueue(Echo(text="ok"))
    acme.producer.close()
    acme.engine.dispose()
    assert drop_role(queue.engine, acme.role)
    assert not drop_role(queue.engine, acme.role)
    assert queue.rows(POLICIES) == _roles(queue) == []


def _roles(queue: Queue) -> list[object]:
    engine = make_engine(queue.settings)
    with engine.connect() as connection:
        found: list[object] = [*list_roles(connection)]
    engine.dispose()
    return found


@pytest.mark.parametrize("name", ["", "A", "a b", 'a"b', "pg_acme", "a" * 41])
def test_a_role_s_name_is_checked(queue: Queue, name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        create_role(queue.engine, name, "acme")


def test_a_tenant_may_be_any_text(queue: Queue) -> None:
    tenant = 'it\'s {acme} %s \\ "x"'
    role = create_role(queue.engine, f"odd_{uuid4().hex[:8]}", tenant, login=False)
    try:
        assert [found.tenant for found in _roles(queue)] == [tenant]  # type: ignore[attr-defined]
        with (
            queue.engine.connect() as connection,
            Producer(queue.settings.model_copy(update={"tenant": tenant})) as producer,
        ):
            connection.execute(text(f"SET LOCAL ROLE {role.name}"))
            producer.enqueue(Echo(text="ok"), connection=connection)
    finally:
        drop_role(queue.engine, role.name)


def test_the_columns_that_producers_write_are_read_from_their_statements() -> None:
    written = written_columns()
    inserted = {("INSERT", table) for table in ("job", "job_request", "job_event", "batch", "source_text")}
    assert set(written) == {*inserted, ("UPDATE", "job")}
    assert set(written["UPDATE", "job"]) == {
        "cancel_requested", "state", "finished_at", "reason", "detail",
        "priority", "deadline", "not_before", "scheduled_for", "delayed",
    }  # fmt: skip
    assert {"id", "tenant", "idempotency_key"} <= set(written["INSERT", "job"])
