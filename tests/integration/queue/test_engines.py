"""Several engines: which list a job goes to, and which engine gets it."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest
from redis import Redis

from tests.support.echo_kind import Echo
from tests.support.engine_lists import A, B, engines_of, listed, start
from tests.support.engine_rows import register
from tests.support.queue_bench import Queue, eventually, running
from thothy_ai.db.fragments import ENGINE_SILENCE_SECONDS
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.dispatcher import Dispatcher
from thothy_ai.queue.dispatches import Dispatches, worker_silence
from thothy_ai.queue.hints import Hint, ListLengths
from thothy_ai.queue.status import queue_status


def test_jobs_go_to_the_lists_of_the_engines_that_serve_them(queue: Queue, redis: Redis) -> None:
    register(queue, "a", "small")
    register(queue, "b", "large")
    [small] = queue.enqueue("ok", model="small")
    [large] = queue.enqueue("ok", model="large", priority=3)
    with running(Dispatcher(queue.settings)):
        eventually(lambda: redis.llen(A) and redis.llen(B))
    assert (listed(redis, A), listed(redis, B)) == ([Hint(small, 1)], [Hint(large, 1)])
    assert engines_of(queue) == {small: "a", large: "b"}
    assert redis.smembers("thothy:engines") == {b"a", b"b"}


def test_siblings_stay_together_after_the_dispatcher_changes(queue: Queue) -> None:
    register(queue, "a")
    register(queue, "b")
    queue.producer.enqueue_many([Echo(text=f"ok {n % 4}") for n in range(16)])
    first = {hint.job_id for each in queue.dispatches() for hint in each.hints}
    homes = {row.source_key: row.engine_name for row in queue.rows("SELECT DISTINCT source_key, engine_name FROM job")}
    assert len(homes) == 4
    assert Counter(homes.values()) == {"a": 2, "b": 2}
    queue.producer.enqueue_many([Echo(text=f"ok {n % 4}") for n in range(16)])
    other = Dispatches(queue.settings, queue.ask)
    other.recall_sources()
    engines = other.engines()
    made = list(other.dispatch(engines, {"a": ListLengths(8, 0), "b": ListLengths(8, 0)}, 16))
    assert {hint.job_id for each in made for hint in each.hints}.isdisjoint(first)
    sources = {(row.source_key, row.engine_name) for row in queue.rows("SELECT source_key, engine_name FROM job")}
    assert sources == set(homes.items())


@pytest.mark.parametrize("state", ["loading", "stopping"])
def test_an_engine_that_is_not_ready_gets_no_jobs(queue: Queue, state: str) -> None:
    register(queue, "a", "small", state=state)
    queue.enqueue("ok")
    queue.enqueue("ok", model="small")
    assert queue.dispatch() == []
    assert queue_status(queue.engine).unserved == {}  # it will serve them


def test_an_engine_gets_jobs_once_a_worker_has_shown_that_it_reaches_it(queue: Queue) -> None:
    register(queue, "a", worker_silent=30)
    session = register(queue, "b", worker_silent=None)
    queue.enqueue(*["ok"] * 3)
    assert queue.dispatches() == []
    assert len(queue.ask("worker/present", session_id=str(session))) == 1
    assert [(each.engine, len(each.hints)) for each in queue.dispatches()] == [("b", 3)]


def test_what_is_published_while_stale_messages_are_removed_stays(queue: Queue, redis: Redis) -> None:
    stale, fresh = Hint(uuid4(), 1), Hint(uuid4(), 1)
    broker = Broker(queue.settings)
    broker.publish([stale, fresh], [stale], engine="a")
    broker.remove({stale}, "a")
    assert (listed(redis, A), broker.depth("a")) == ([fresh], ListLengths(1, 0))
    broker.close()


def test_a_worker_has_two_heartbeats_and_two_answers_of_its_engine_to_show_that_it_is_there(queue: Queue) -> None:
    settings = queue.settings.model_copy(update={"heartbeat_seconds": 10.0})
    assert worker_silence(settings) == 30


def test_presence_is_not_noted_before_the_engine_has_recorded_itself(queue: Queue) -> None:
    assert queue.ask("worker/present", session_id=str(uuid4())) == []


def test_without_any_engine_jobs_stay_queued(queue: Queue) -> None:
    register(queue, "a", silent=ENGINE_SILENCE_SECONDS + 1)
    queue.enqueue("ok")
    queue.enqueue("ok", model="small")
    assert queue.dispatches() == []
    assert queue.count("queued") == 2


def test_of_an_engine_s_sessions_the_last_one_counts(queue: Queue) -> None:
    register(queue, "a", "old", age=100)
    register(queue, "a", "new", age=10)
    queue.enqueue("ok", model="old")
    [job_id] = queue.enqueue("ok", model="new")
    assert [hint.job_id for hint in queue.dispatch()] == [job_id]


def test_an_engine_without_jobs_gets_half_of_what_waits_for_another(queue: Queue) -> None:
    """The last ones in planned order, of those that it may run; their earlier messages are stale."""
    register(queue, "a", "small")
    ids = queue.enqueue(*(f"ok {n}" for n in range(8)))
    queue.enqueue("ok", model="small")
    queue.dispatch()
    planned = [row.id for row in queue.rows("SELECT id FROM job ORDER BY source_key, id") if row.id in ids]
    register(queue, "b", "large")
    start(queue, planned[0], register(queue, "x", state="ended"), engine_name="b")
    queue.rows("UPDATE job SET started_at = now(), engine_name = 'b' WHERE state = 'running'")
    made = Dispatches(queue.settings, queue.ask)
    engines = made.engines()
    depths = {"a": ListLengths(8, 0), "b": ListLengths(0, 0)}
    queue.rows("UPDATE job SET dispatched_at = now() + interval '1 hour' WHERE state = 'dispatched'")
    assert list(made.hand_over(engines, depths, set())) == []  # they have waited for less than a second
    queue.rows("UPDATE job SET dispatched_at = now() - interval '2 s' WHERE state = 'dispatched'")
    assert list(made.hand_over(engines, depths, {"b"})) == []
    [given] = made.hand_over(engines, depths, set())
    assert (given.engine, given.ordinary) == ("b", [Hint(planned[-1], 2)])  # as many as it runs
    assert queue.job(planned[-1]).engine_name == "b"
