"""The dispatcher: planned order, a shallow list, wake-ups, and servers that go away."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from pydantic import SecretStr
from redis import Redis

from tests.support.echo_kind import Echo
from tests.support.engine_rows import register_first
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from thothy_ai.errors import BrokerUnreachableError
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.hints import Hint, parse_task_id

KEY = "thothy:jobs@first"


@pytest.fixture(autouse=True)
def first(queue: Queue) -> None:
    """The one engine that the dispatcher knows."""
    register_first(queue)


@contextmanager
def dispatching(queue: Queue, **changes: object) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(queue.settings.model_copy(update=changes))
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        yield dispatcher
    finally:
        dispatcher.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def listed(redis: Redis) -> list[UUID]:
    """Jobs in the order in which workers get them."""
    hints = (parse_task_id(json.loads(element)["headers"]["id"]) for element in reversed(redis.lrange(KEY, 0, -1)))
    return [hint.job_id for hint in hints if hint is not None]


def test_jobs_go_out_by_priority_then_deadline_then_source(queue: Queue, redis: Redis) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    wanted = [
        (Echo(text="ok b"), EnqueueOptions()),
        (Echo(text="ok a"), EnqueueOptions()),
        (Echo(text="ok b"), EnqueueOptions()),
        (Echo(text="ok c"), EnqueueOptions(deadline=soon)),
        (Echo(text="ok d"), EnqueueOptions(priority=3)),
        (Echo(text="ok e"), EnqueueOptions(not_before=soon)),
    ]
    jobs = [job.id for job in queue.producer.enqueue_many(wanted)]
    with dispatching(queue):
        eventually(lambda: redis.llen(KEY) == 5)
    order = [jobs.index(job_id) for job_id in listed(redis)]
    assert order[:2] == [4, 3]
    assert order[2:] in ([1, 0, 2], [0, 2, 1])  # siblings stay together
    assert queue.job(jobs[5]).state == "queued"


def test_an_old_job_goes_out_before_fresh_ones_and_siblings_stay_together(queue: Queue) -> None:
    fresh, old = queue.enqueue("ok a", "ok b", "ok a", "ok b"), queue.enqueue("ok c", "ok d", "ok e")
    queue.rows("UPDATE job SET enqueued_at = date_trunc('hour', now())")
    queue.rows("UPDATE job SET enqueued_at = enqueued_at - interval '20 minutes' WHERE id = ANY(:old)", old=old)
    jobs = fresh + old
    order = [jobs.index(hint.job_id) for hint in queue.dispatch()]
    assert sorted(order[:3]) == [4, 5, 6]
    assert order[3:] in ([0, 2, 1, 3], [1, 3, 0, 2])


def test_redis_stays_shallow(queue: Queue, redis: Redis) -> None:
    queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(100)])
    with dispatching(queue, dispatch_min_depth=10):
        eventually(lambda: redis.llen(KEY) == 10)
        redis.rpop(KEY, 4)
        eventually(lambda: queue.count("dispatched") == 14)
        eventually(lambda: redis.llen(KEY) == 10)  # they are published once they are recorded
    assert queue.count("queued") == 86


def test_a_paused_queue_dispatches_nothing_until_it_is_resumed(queue: Queue, redis: Redis) -> None:
    set_paused(queue.engine, paused=True)
    queue.enqueue("ok")
    assert queue.dispatch() == []
    with dispatching(queue):
        set_paused(queue.engine, paused=False)
        eventually(lambda: redis.llen(KEY) == 1)


def test_a_notify_wakes_it(queue: Queue, redis: Redis) -> None:
    with dispatching(queue, dispatch_interval_seconds=600):
        eventually(
            lambda: queue.rows(
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE '-- As `queue/due` and%' AND state = 'idle'"
            )
        )
        queue.enqueue("ok")
        eventually(lambda: redis.llen(KEY) == 1)


def test_a_second_dispatcher_stands_by_and_takes_over(queue: Queue, redis: Redis) -> None:
    with dispatching(queue) as first:
        eventually(lambda: first.leads)
        with dispatching(queue) as second:
            queue.enqueue("ok 1")
            eventually(lambda: redis.llen(KEY) == 1)
            assert not second.leads
            first.stop()
            eventually(lambda: second.leads)
            queue.enqueue("ok 2")
            eventually(lambda: redis.llen(KEY) == 2)


def test_it_outlives_its_connection_to_postgres(queue: Queue, redis: Redis) -> None:
    with dispatching(queue) as dispatcher:
        eventually(lambda: dispatcher.leads)
        queue.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'thothy-dispatcher'"
        )
        queue.enqueue("ok")
        eventually(lambda: redis.llen(KEY) == 1)


def test_what_cannot_be_published_goes_back(queue: Queue, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([BrokerUnreachableError("away"), BrokerUnreachableError("away")])
    publish = Broker.publish

    def flaky(broker: Broker, hints: list[Hint], urgent: list[Hint], *, engine: str) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        publish(broker, hints, urgent, engine=engine)

    monkeypatch.setattr(Broker, "publish", flaky)
    [job_id] = queue.enqueue("ok")
    with dispatching(queue):
        eventually(lambda: redis.llen(KEY) == 1)
    assert (queue.job(job_id).state, queue.job(job_id).dispatch_no) == ("dispatched", 3)


def test_the_broker_reads_back_what_it_published_and_nothing_else(queue: Queue, redis: Redis) -> None:
    ids = queue.enqueue("ok 1", "ok 2")
    broker = Broker(queue.settings)
    broker.publish([Hint(ids[0], 1), Hint(ids[1], 4)], engine="first")
    redis.lpush(KEY, b"\xff\x00 no json", b"[]", b'{"headers": {"id": "x"}}', b'{"headers": null}')
    assert broker.depth("first") == (6, 0)
    assert broker.waiting("first") == ({Hint(ids[0], 1), Hint(ids[1], 4)}, set())
    broker.close()


def test_an_unreachable_redis_has_a_name(queue: Queue) -> None:
    broker = Broker(queue.settings.model_copy(update={"redis_url": SecretStr("redis://:secret@127.0.0.1:1/0")}))
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1") as caught:
        broker.publish([Hint(queue.enqueue("ok")[0], 1)], engine="first")
    assert "secret" not in str(caught.value)
    with pytest.raises(BrokerUnreachableError):
        broker.depth("first")
    broker.close()


def test_the_list_s_length_is_asked_for_and_not_remembered(queue: Queue, redis: Redis) -> None:
    """Also by one that stands by: a leader of yesterday must not show yesterday's figure."""
    with dispatching(queue) as dispatcher:
        redis.sadd("thothy:engines", "first")
        redis.lpush(KEY, "a", "b")
        assert dispatcher.list_lengths() == (2, 0)
        redis.delete(KEY)
        assert dispatcher.list_lengths() == (0, 0)
    with dispatching(queue, redis_url=SecretStr("redis://:x@127.0.0.1:1/0")) as dispatcher:
        assert all(map(math.isnan, dispatcher.list_lengths()))
