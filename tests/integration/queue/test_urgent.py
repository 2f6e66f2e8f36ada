"""Which jobs are urgent, and that their hints wait for nothing: a list of their own, past a full one."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from redis import Redis

from tests.support.engine_rows import register_first
from tests.support.queue_bench import Queue, eventually, running
from tests.support.worker_fleet import KEY, URGENT_KEY
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.dispatcher import MAX_URGENT, Dispatcher
from thothy_ai.queue.hints import Hint, parse_task_id
from thothy_ai.queue.reaper import Reaper


def listed(redis: Redis, key: str) -> list[UUID]:
    """Jobs in the order in which workers get them."""
    hints = (parse_task_id(json.loads(element)["headers"]["id"]) for element in reversed(redis.lrange(key, 0, -1)))
    return [hint.job_id for hint in hints if hint is not None]


def dispatch(queue: Queue, *, places: int = 64, urgent_places: int = 64) -> dict[UUID, bool]:
    """What is dispatched now, and whether each job is urgent."""
    made = queue.dispatches(0, places, urgent_places)
    return {
        hint.job_id: urgent
        for each in made
        for urgent, hints in ((True, each.urgent), (False, each.ordinary))
        for hint in hints
    }


def start(queue: Queue, job_id: UUID) -> None:
    queue.rows(
        "UPDATE job SET state = 'running', worker = 'w', started_at = now(), lease_until = now() WHERE id = :id",
        id=job_id,
    )


def test_where_priorities_are_equal_no_job_is_urgent(queue: Queue) -> None:
    first = queue.enqueue("ok", "ok", priority=5)
    assert dispatch(queue) == dict.fromkeys(first, False)
    start(queue, first[0])
    later = queue.enqueue("ok", "ok", priority=5)
    lower = queue.enqueue("ok", priority=4)
    assert dispatch(queue) == dict.fromkeys(later + lower, False)


@pytest.mark.parametrize("runs", [False, True])
def test_a_job_is_urgent_while_one_of_lower_priority_is_dispatched_or_running(queue: Queue, runs: bool) -> None:
    [low] = queue.enqueue("ok", priority=-1)
    dispatch(queue)
    if runs:
        start(queue, low)
    [urgent] = queue.enqueue("ok")
    assert dispatch(queue) == {urgent: True}
    queue.rows("UPDATE job SET state = 'cancelled', finished_at = now(), worker = NULL, lease_until = NULL")
    [job_id] = queue.enqueue("ok")
    assert dispatch(queue) == {job_id: False}


@pytest.mark.parametrize("running", ["low", "high"])
def test_one_job_of_lower_priority_is_enough(queue: Queue, running: str) -> None:
    high, low = queue.enqueue("ok", priority=5) + queue.enqueue("ok")
    dispatch(queue)
    start(queue, low if running == "low" else high)
    [between] = queue.enqueue("ok", priority=3)
    assert dispatch(queue) == {between: True}


def test_a_job_that_is_tried_again_is_not_urgent_among_its_equals(queue: Queue) -> None:
    [old] = queue.enqueue("ok")
    queue.rows("UPDATE job SET enqueued_at = now() - interval '3 hours', attempt = 1, failures = 1")
    queue.rows("UPDATE queue_control SET paused = true")
    [fresh] = queue.enqueue("ok")
    start(queue, fresh)
    queue.rows("UPDATE queue_control SET paused = false")
    assert dispatch(queue) == {old: False}


def test_urgent_jobs_have_a_limit_of_their_own_and_never_join_the_others(queue: Queue) -> None:
    queue.enqueue(*["ok"] * 3)
    assert set(dispatch(queue, places=2, urgent_places=0).values()) == {False}
    urgent = queue.enqueue(*["ok"] * 5, priority=1)
    queue.enqueue(*["ok"] * 2)
    found = dispatch(queue, places=3, urgent_places=2)
    assert found == dict.fromkeys(urgent[:2], True)
    assert dispatch(queue, places=3, urgent_places=0) == {}  # those at the queue's head do not go into the other list
    assert dispatch(queue, places=0, urgent_places=3) == dict.fromkeys(urgent[2:], True)
    assert list(dispatch(queue, places=3, urgent_places=-3).values()) == [False] * 3


def test_an_urgent_job_passes_a_full_list(queue: Queue, redis: Redis) -> None:
    queue.enqueue(*["ok"] * 30)
    register_first(queue)
    settings = queue.settings.model_copy(update={"dispatch_min_depth": 10, "dispatch_interval_seconds": 600})
    dispatcher = Dispatcher(settings)
    with running(dispatcher):
        eventually(lambda: redis.llen(KEY) == 10)
        queue.enqueue(*["ok"] * MAX_URGENT, "ok", priority=1)
        eventually(lambda: redis.llen(URGENT_KEY) == MAX_URGENT)
        high = queue.enqueue("ok", priority=2)
        assert redis.llen(KEY) == 10
        assert dispatcher.list_lengths() == (10 + MAX_URGENT, MAX_URGENT)
        redis.rpop(URGENT_KEY)
        queue.enqueue("ok")  # a NOTIFY
        eventually(lambda: high[0] in listed(redis, URGENT_KEY))
    assert redis.llen(KEY) == 10


def test_a_paused_queue_dispatches_no_urgent_job(queue: Queue) -> None:
    queue.enqueue("ok")
    dispatch(queue)
    set_paused(queue.engine, paused=True)
    [urgent] = queue.enqueue("ok", priority=1)
    assert dispatch(queue) == {}
    set_paused(queue.engine, paused=False)
    assert dispatch(queue) == {urgent: True}


def test_a_lost_urgent_message_is_published_again(queue: Queue, redis: Redis) -> None:
    register_first(queue)
    settings = queue.settings.model_copy(update={"dispatch_timeout_seconds": 0.2})
    with running(Dispatcher(settings)):
        queue.enqueue("ok")
        eventually(lambda: redis.llen(KEY) == 1)
        [urgent] = queue.enqueue("ok", priority=1)
        eventually(lambda: listed(redis, URGENT_KEY) == [urgent])
        redis.flushall()
        with running(Reaper(settings)):
            eventually(lambda: queue.job(urgent).dispatch_no > 1)
    assert "republished" in queue.events(urgent)


def test_urgent_messages_that_wait_for_a_moment_stay_where_they_are(queue: Queue, redis: Redis) -> None:
    ids = queue.enqueue("ok", "ok")
    queue.rows("UPDATE job SET state = 'dispatched', dispatch_no = 1, dispatched_at = now(), engine_name = 'first'")
    queue.rows("UPDATE job SET dispatched_at = now() - interval '1 hour' WHERE id = :id", id=ids[0])
    broker = Broker(queue.settings)
    broker.publish([], [Hint(ids[1], 1)], engine="first")
    broker.close()
    with running(Reaper(queue.settings.model_copy(update={"dispatch_timeout_seconds": 600}))):
        eventually(lambda: queue.job(ids[0]).state == "queued")
    assert redis.llen(URGENT_KEY) == 1
