"""Webhooks: written with the outcome, delivered to a real HTTP server, signed, tried again, dead in the end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from tests.support.echo_kind import Echo
from tests.support.home import THOTHY
from tests.support.queue_bench import PATIENCE, Queue, eventually, runner_bench, running
from tests.support.webhook_receiver import Received, Receiver, receiver
from tests.support.worker_fleet import environment
from thothy_ai import verify_webhook
from thothy_ai.admin import webhooks
from thothy_ai.db.roles import create_role, drop_role
from thothy_ai.errors import InvalidJobError, WebhookVerificationError
from thothy_ai.jobs.kind import Request
from thothy_ai.producer import AsyncProducer, EnqueueOptions, Producer
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.webhooks import deliverer, post
from thothy_ai.queue.webhooks.deliverer import Deliverer
from thothy_ai.queue.webhooks.signing import receiver_secret

SECRET, OLD_SECRET = "a secret of 24 characters", "an old secret of 24 characters"
OPTIONS = {
    "webhook_secrets": SecretStr(f"{SECRET}, {OLD_SECRET}"),
    "webhook_networks": ("127.0.0.0/8",),
}


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(deliverer, "LAST_DELAY", 0.02)
    monkeypatch.setattr(deliverer, "INTERVAL", 0.05)


@contextmanager
def delivering(queue: Queue, **changes: object) -> Iterator[None]:
    with Deliverer(queue.settings.model_copy(update=OPTIONS | changes)).running():
        yield


def deliveries(queue: Queue) -> list[Any]:
    return queue.rows("SELECT * FROM webhook_delivery ORDER BY created_at")


def drain(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        bench.settle()


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


@pytest.mark.usefixtures("_impatient")
def test_a_receiver_that_fails_is_tried_again_with_the_same_id(queue: Queue, hook: Receiver) -> None:
    hook.answer = lambda _: 500 if len(hook.requests) < 3 else 200
    queue.producer.enqueue(Echo(text="ok"), webhook=hook.url)
    with delivering(queue):
        drain(queue)
        eventually(lambda: deliveries(queue)[0].delivered_at)
    assert len({request.headers["webhook-id"] for request in hook.requests}) == 1
    assert len(hook.requests) == 4 == deliveries(queue)[0].attempts
    assert deliveries(queue)[0].status == 200


@pytest.mark.usefixtures("_impatient")
def test_it_is_dead_after_a_day_and_can_be_sent_again(queue: Queue, hook: Receiver) -> None:
    hook.answer = lambda _: 503
    queue.producer.enqueue(Echo(text="ok"), webhook=hook.url)
    drain(queue)
    queue.rows("UPDATE webhook_delivery SET retry_until = now() - interval '1 second'")
    with delivering(queue):
        eventually(lambda: deliveries(queue)[0].dead_at)
        assert webhooks.counts(queue.engine) == {"waiting": 0, "delivered": 0, "dead": 1}
        [dead] = webhooks.deliveries(queue.engine, state="dead", tenant=None, limit=10)
        assert dead["error"].startswith("HTTP 503")
        hook.answer = lambda _: 200
        assert webhooks.retry(queue.engine, [dead["id"]]) == 1
        eventually(lambda: deliveries(queue)[0].delivered_at)
    assert webhooks.retry(queue.engine, [dead["id"]]) == 0
    assert webhooks.retry(queue.engine, None) == 0


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(("status", "dead"), [(410, True), (302, False)])
def test_gone_is_final_and_redirects_are_not_followed(queue: Queue, hook: Receiver, status: int, dead: bool) -> None:
    hook.headers = {"location": f"{hook.url}/elsewhere"}
    hook.answer = lambda _: status
    queue.producer.enqueue(Echo(text="ok"), webhook=f"{hook.url}/here")
    with delivering(queue):
        drain(queue)
        eventually(lambda: deliveries(queue)[0].dead_at if dead else deliveries(queue)[0].attempts > 1)
    assert {request.path for request in hook.requests} == {"/here"}
    assert len(hook.requests) == 1 or not dead


def test_an_address_that_is_not_public_is_refused_at_once(queue: Queue, hook: Receiver) -> None:
    for url in (hook.url, hook.url.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest/meta-data"):
        queue.producer.enqueue(Echo(text="ok"), webhook=url)
    with delivering(queue, webhook_networks=()):
        drain(queue)
        eventually(lambda: webhooks.counts(queue.engine)["dead"] == 3)
    assert hook.requests == []
    assert all("not a public address" in row.error and row.attempts == 1 for row in deliveries(queue))


@pytest.mark.usefixtures("_impatient")
def test_a_receiver_that_hangs_holds_up_no_other(queue: Queue, hook: Receiver) -> None:
    release = threading.Event()

    def hang(_: Received) -> int:
        release.wait(60)
        return 200

    with receiver() as slow:
        slow.answer = hang
        queue.producer.enqueue_many([Echo(text=f"ok {n}") for n in range(30)], webhook=slow.url, notify="job")
        queue.producer.enqueue(Echo(text="ok"), webhook=hook.url)
        drain(queue)
        with delivering(queue):
            eventually(lambda: hook.requests)
            assert slow.requests == []
            assert sum(row.attempts for row in deliveries(queue) if row.url == slow.url) <= deliverer.PER_ORIGIN
            release.set()
            eventually(lambda: len(slow.requests) == 30)


def test_an_answer_that_never_ends_is_cut_off(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "TOTAL_SECONDS", 0.3)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            with client:
                while not stop.wait(0.05):
                    try:
                        client.send(b"H")  # a byte in time keeps a plain timeout from passing
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        answer = post.post(url, b"{}", {}, deliverer.networks(["127.0.0.1/32"]))
        stop.set()
        thread.join()
    assert not answer.delivered
    assert not answer.final
    assert answer.error == "TimeoutError: no complete answer within 0.3 s"


def test_without_a_secret_they_wait(queue: Queue, hook: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    queue.producer.enqueue(Echo(text="ok"), webhook=hook.url)
    drain(queue)
    with delivering(queue, webhook_secrets=None):
        eventually(lambda: "THOTHY_WEBHOOK_SECRETS is not set" in caplog.text)
    assert [row.attempts for row in deliveries(queue)] == [0]


def test_the_reaper_s_rounds_go_on_beside_them(queue: Queue, hook: Receiver) -> None:
    """Each has a connection and a lock of its own."""
    job = queue.producer.enqueue(Echo(text="ok"), webhook=hook.url)
    with delivering(queue), running(Reaper(queue.settings)):
        queue.rows("UPDATE job SET deadline = now() WHERE id = :id", id=job.id)
        eventually(lambda: hook.requests)
    assert hook.messages()[0]["data"]["state"] == "expired"


def test_a_reaper_s_process_delivers_and_ends_while_a_receiver_hangs(queue: Queue, hook: Receiver) -> None:
    queue.producer.enqueue(Echo(text="ok"), webhook=hook.url).cancel()
    given = environment(queue.settings) | {
        "THOTHY_WEBHOOK_SECRETS": SECRET,
        "THOTHY_WEBHOOK_NETWORKS": "127.0.0.0/8, ::1/128",
    }
    hanging, release = threading.Event(), threading.Event()

    def hang(_: Received) -> int:
        hanging.set()
        release.wait(PATIENCE)
        return 200

    with receiver() as slow, subprocess.Popen([*THOTHY, "reaper"], env=given) as process:
        slow.answer = hang
        eventually(lambda: hook.requests)
        queue.producer.enqueue(Echo(text="ok"), webhook=slow.url).cancel()
        assert hanging.wait(PATIENCE)
        process.terminate()
        assert process.wait(post.TOTAL_SECONDS - 5) == 0
        release.set()
    verify_webhook(hook.requests[0].headers, hook.requests[0].body, receiver_secret(SECRET, "default"))


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
