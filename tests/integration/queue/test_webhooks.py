"""Webhooks: of jobs and batches, written with the outcome, signed, and deleted after some days."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from tests.support.echo_kind import Echo
from tests.support.queue_bench import Queue, eventually, runner_bench
from tests.support.webhook_bench import OLD_SECRET, SECRET, deliveries, delivering, drain
from tests.support.webhook_receiver import Receiver
from thothy_ai import verify_webhook
from thothy_ai.db.roles import create_role, drop_role
from thothy_ai.errors import InvalidJobError, WebhookVerificationError
from thothy_ai.jobs.api.kind import Request
from thothy_ai.producer import AsyncProducer, EnqueueOptions, Producer
from thothy_ai.queue.webhooks.signing import receiver_secret


def test_the_end_of_a_job_is_told_and_signed(queue: Queue, hook: Receiver) -> None:
    job = queue.producer.enqueue(Echo(text="ok"), webhook=f"{hook.url}/done?x=1")
    with delivering(queue):
        drain(queue)
        eventually(lambda: hook.requests)
        eventually(lambda: deliveries(queue)[0].delivered_at)
    [request] = hook.requests
    assert request.path == "/done?x=1"
    for secret in (SECRET, OLD_SECRET):
        message = verify_webhook(request.headers, request.body, receiver_secret(secret, "default"))
        assert (message.id, message.type) == (str(deliveries(queue)[0].id), "job.ended")
    ended = queue.job(job.id)
    assert message.timestamp == ended.finished_at
    wanted = {"job_id": str(job.id), "kind": "echo", "state": "succeeded", "tenant": "default", "reason": None}
    assert wanted.items() <= message.data.items()
    assert "ok" not in request.body.decode()
    with pytest.raises(WebhookVerificationError):
        verify_webhook(request.headers, request.body, receiver_secret(SECRET, "other"))


def test_without_a_webhook_nothing_is_written(queue: Queue) -> None:
    queue.enqueue("ok 1", "hopeless 2")
    assert queue.producer.enqueue_many([Echo(text="ok")]).batch_id is None
    drain(queue)
    assert deliveries(queue) == queue.rows("SELECT * FROM batch") == []
    assert queue.rows("SELECT count(batch_id) FROM job") == [(0,)]


def test_a_batch_is_told_once_at_its_end_follow_ups_included(queue: Queue, hook: Receiver) -> None:
    entries = [Echo(text="ok 1", more=2), Echo(text="hopeless"), Echo(text="ok 3")]
    jobs = queue.producer.enqueue_many(entries, webhook=hook.url)
    with delivering(queue):
        assert jobs[2].cancel()
        with runner_bench(queue) as bench:
            bench.settle()
        eventually(lambda: hook.requests)
    [message] = hook.messages()
    assert message["type"] == "batch.ended"
    assert message["data"]["batch_id"] == str(jobs.batch_id)
    assert message["data"]["jobs"] == 3
    assert message["data"]["states"] == {"succeeded": 3, "dead": 1, "cancelled": 1}
    assert queue.rows("SELECT count(*) FROM batch WHERE ended_at IS NULL") == [(0,)]
    queue.ask("queue/end_batches", limit=10)
    assert len(deliveries(queue)) == 1


def test_a_batch_with_an_open_job_has_not_ended(queue: Queue, hook: Receiver) -> None:
    jobs = queue.producer.enqueue_many([Echo(text="ok 1"), Echo(text="ok 2")], webhook=hook.url)
    jobs[0].cancel()
    queue.ask("queue/end_batches", limit=10)
    assert deliveries(queue) == []
    jobs[1].cancel()
    queue.ask("queue/end_batches", limit=10)
    assert len(deliveries(queue)) == 1


def test_however_a_job_ends_it_is_told_in_the_same_transaction(queue: Queue, hook: Receiver) -> None:
    entries = [Echo(text="ok succeeds"), Echo(text="hopeless"), Echo(text="ok is cancelled"), Echo(text="ok expires")]
    jobs = queue.producer.enqueue_many(entries, webhook=hook.url, notify="job")
    jobs[2].cancel()
    queue.rows("UPDATE job SET deadline = now() WHERE id = :id", id=jobs[3].id)
    queue.ask("queue/reap_expired", limit=10)
    drain(queue)
    found = {row.payload["data"]["job_id"]: row.payload["data"]["state"] for row in deliveries(queue)}
    assert found == dict(zip([str(job.id) for job in jobs], ["succeeded", "dead", "cancelled", "expired"], strict=True))
    with queue.engine.connect() as connection:  # rolled back: neither the end nor the message
        connection.execute(text("UPDATE job SET state = 'queued', finished_at = NULL, reason = NULL"))
        connection.execute(text("UPDATE job SET state = 'cancelled', finished_at = now()"))
        assert connection.scalar(text("SELECT count(*) FROM webhook_delivery")) == 8
    assert len(deliveries(queue)) == 4


def test_jobs_that_existed_are_not_told_again(queue: Queue, hook: Receiver) -> None:
    keyed: tuple[Request[Any], EnqueueOptions] = (Echo(text="ok"), EnqueueOptions(idempotency_key="k"))
    first = queue.producer.enqueue_many([keyed], webhook=hook.url)
    again = queue.producer.enqueue_many([keyed], webhook=hook.url)
    more = queue.producer.enqueue_many([keyed, Echo(text="ok 2")], webhook=hook.url)
    assert first.batch_id
    assert more.batch_id
    assert again.batch_id is None
    assert queue.rows("SELECT jobs FROM batch ORDER BY id") == [(1,), (1,)]
    with pytest.raises(InvalidJobError), queue.engine.connect() as connection:
        queue.producer.enqueue(Echo(text="ok"), webhook="file:///etc/passwd", connection=connection)


def test_a_transaction_that_rolls_back_leaves_no_batch(queue: Queue, hook: Receiver) -> None:
    with queue.engine.connect() as connection:
        queue.producer.enqueue_many([Echo(text="ok")], webhook=hook.url, connection=connection)
        connection.rollback()
    assert queue.rows("SELECT * FROM batch") == []


def test_async_producers_ask_for_webhooks_too(queue: Queue, hook: Receiver) -> None:
    async def story() -> None:
        async with AsyncProducer(queue.settings) as producer:
            await producer.enqueue(Echo(text="ok 1"), webhook=hook.url)
            jobs = await producer.enqueue_many([Echo(text="ok 2")], webhook=hook.url, notify="job")
            assert jobs.batch_id is not None

    asyncio.run(story())
    drain(queue)
    assert [row.payload["type"] for row in deliveries(queue)] == ["job.ended"] * 2


def test_delivered_ones_are_deleted_after_some_days(queue: Queue, hook: Receiver) -> None:
    for _ in range(2):
        queue.producer.enqueue(Echo(text="ok"), webhook=hook.url).cancel()
    queue.ask("queue/end_batches", limit=10)
    [first, _] = deliveries(queue)
    queue.rows("UPDATE webhook_delivery SET delivered_at = now() WHERE id = :id", id=first.id)
    queue.ask("queue/purge_deliveries", days=7, dead_days=30)
    assert len(deliveries(queue)) == 2
    queue.rows("UPDATE webhook_delivery SET created_at = now() - interval '8 days'")
    queue.rows("UPDATE batch SET ended_at = now() - interval '31 days'")
    queue.ask("queue/purge_deliveries", days=7, dead_days=30)
    assert len(deliveries(queue)) == 1
    assert queue.rows("SELECT count(*) FROM batch") == [(0,)]


def test_a_tenant_s_role_asks_for_webhooks_of_its_own_jobs_only(queue: Queue, hook: Receiver) -> None:
    role = create_role(queue.engine, f"acme_{uuid4().hex[:8]}", "acme")
    url = make_url(queue.settings.require_database_url()).set(username=role.name, password=role.password)
    plain = url.render_as_string(hide_password=False)
    theirs = queue.settings.model_copy(update={"tenant": "acme", "database_url": SecretStr(plain)})
    others = queue.producer.enqueue_many([Echo(text="ok")], webhook=hook.url)
    engine = create_engine(url)
    try:
        with Producer(theirs) as producer, engine.connect() as connection:
            [told] = producer.enqueue_many(
                [
                    Echo(text="ok"),
                ][:1],
                webhook=hook.url,
                notify="job",
            )
            assert told.cancel()  # the trigger has rights that the role lacks
            for sql in (
                "SELECT * FROM thothy.batch",
                "SELECT * FROM thothy.webhook_delivery",
                (
                    "INSERT INTO thothy.batch (id, tenant, url, notify, jobs)"
                    " VALUES (gen_random_uuid(), 'default', 'https://x.example', 'job', 1)"
                ),
                (
                    "INSERT INTO thothy.batch (id, tenant, url, notify, jobs)"
                    " VALUES (gen_random_uuid(), 'acme', 'gopher://x', 'job', 1)"
                ),
            ):
                with pytest.raises(DBAPIError):
                    connection.execute(text(sql))
                connection.rollback()
            connection.execute(  # a job that claims to be of another tenant's batch neither ends nor delays it
                text(
                    "INSERT INTO thothy.job (id, tenant, kind, source_key, request_digest, max_attempts, batch_id)"
                    " VALUES (gen_random_uuid(), 'acme', 'echo', 's', 'd', 1, :batch)"
                ),
                {"batch": others.batch_id},
            )
            connection.commit()
        others[0].cancel()
        queue.ask("queue/end_batches", limit=10)
        assert [(row.tenant, row.payload["type"]) for row in deliveries(queue)] == [
            ("acme", "job.ended"),
            ("default", "batch.ended"),
        ]
        assert deliveries(queue)[1].payload["data"]["states"] == {"cancelled": 1}
    finally:
        engine.dispose()
        drop_role(queue.engine, role.name)
