"""Webhooks are delivered to a real HTTP server, tried again, and dead in the end."""

from __future__ import annotations

import socket
import subprocess
import threading

import pytest

from tests.support.echo_kind import Echo
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, running
from tests.support.webhook_bench import SECRET, deliveries, delivering, drain
from tests.support.webhook_receiver import Received, Receiver, receiver
from tests.support.worker_fleet import environment
from thothy_ai import verify_webhook
from thothy_ai.admin import webhooks
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.webhooks import deliverer, post
from thothy_ai.queue.webhooks.signing import receiver_secret


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(deliverer, "LAST_DELAY", 0.02)
    monkeypatch.setattr(deliverer, "INTERVAL", 0.05)


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
        assert webhooks.retry(queue.engine, [dead["id"]]) == [dead["id"]]
        eventually(lambda: deliveries(queue)[0].delivered_at)
    assert webhooks.retry(queue.engine, [dead["id"]]) == []
    assert webhooks.retry(queue.engine, None) == []


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
        assert process.wait(PATIENCE) == 0
        [left] = [row for row in deliveries(queue) if row.url == slow.url]
        assert (left.attempts, left.error) == (1, None), "it has not waited until the receiver was given up"
        release.set()
    verify_webhook(hook.requests[0].headers, hook.requests[0].body, receiver_secret(SECRET, "default"))
