"""Urgent jobs and whole workers, as processes: every place taken by jobs that never end, yet they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from redis import Redis

from tests.support.echo_kind import Echo
from tests.support.fake_engine import FakeClient
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue, eventually, runner_bench
from tests.support.worker_fleet import KEY, UNACKED, URGENT_KEY, WorkerFleet, check_each_once, enqueue
from thothy_ai.producer.drafts import EnqueueOptions
from thothy_ai.queue.app import ordinary_queue, urgent_queue
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.dispatcher import MAX_URGENT
from thothy_ai.queue.hints import Hint
from thothy_ai.worker.celery.app import make_worker_app
from thothy_ai.worker.celery.visibility import refresh

IN_FLIGHT = int(str(QUICK["worker_in_flight"]))
UNACKED_INDEX = f"{UNACKED}_index"
DEPTH = 64  # of the list, when few jobs run


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def enqueue_hanging(queue: Queue, jobs: int, priority: int = 0) -> list[UUID]:
    wanted = [(Echo(text=f"hang {n}"), EnqueueOptions(priority=priority)) for n in range(jobs)]
    return [job.id for job in queue.producer.enqueue_many(wanted)]


def fill(queue: Queue, redis: Redis, workers: int = 1) -> list[UUID]:
    """Jobs that never end, until every place of the workers is taken and the list is full."""
    jobs = enqueue_hanging(queue, 200)
    eventually(lambda: queue.count("running") == workers * IN_FLIGHT and redis.llen(KEY) == DEPTH)
    return jobs


def succeeded(queue: Queue, jobs: list[UUID]) -> bool:
    return all(queue.job(job_id).state == "succeeded" for job_id in jobs)


def test_the_engine_learns_priority_and_deadline(queue: Queue) -> None:
    client = FakeClient()
    deadline = datetime.now(UTC) + timedelta(hours=1)
    with runner_bench(queue, client) as bench:
        bench.work("ok", priority=-7, deadline=deadline)
        bench.work("ok")
        bench.settle()
    assert {(request.priority, request.deadline) for request in client.submitted} == {
        (-7, deadline.timestamp()),
        (0, None),
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_urgent_jobs_pass_a_full_list_and_full_workers(
    queue: Queue, redis: Redis, patient_fleet: WorkerFleet, workers: int
) -> None:
    for _ in range(workers):
        patient_fleet.worker()
    stuck = fill(queue, redis, workers)
    [one] = queue.enqueue("ok now", priority=1)
    eventually(lambda: succeeded(queue, [one]))
    many = [queue.enqueue(f"ok {n}", priority=1 + n % 3)[0] for n in range(5 * IN_FLIGHT)]
    eventually(lambda: succeeded(queue, many))
    assert queue.count("running") == workers * IN_FLIGHT
    assert {queue.job(job_id).attempt for job_id in stuck} == {0, 1}
    assert redis.llen(URGENT_KEY) == 0


def test_ordinary_jobs_take_no_urgent_places_and_urgent_jobs_no_ordinary_ones(
    queue: Queue, redis: Redis, patient_fleet: WorkerFleet
) -> None:
    patient_fleet.worker()
    fill(queue, redis)
    urgent = enqueue_hanging(queue, IN_FLIGHT + MAX_URGENT + 1, priority=1)
    eventually(lambda: redis.llen(URGENT_KEY) == MAX_URGENT and queue.count("running") == 2 * IN_FLIGHT)
    assert queue.rows("SELECT priority, count(*) FROM job WHERE state = 'running' GROUP BY 1 ORDER BY 1") == [
        (0, IN_FLIGHT),
        (1, IN_FLIGHT),
    ]
    [one] = [job_id for job_id in urgent if queue.job(job_id).state == "running"][:1]
    queue.producer.cancel(one)
    eventually(lambda: queue.job(one).state == "cancelled" and queue.count("running") == 2 * IN_FLIGHT)


def test_a_killed_worker_loses_no_urgent_job(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 100)
    first = fleet.worker(2)
    eventually(lambda: queue.count("running") > 5)
    queue.producer.enqueue_many([(Echo(text=f"ok {n}"), EnqueueOptions(priority=2)) for n in range(50)])
    eventually(lambda: queue.rows("SELECT 1 FROM job WHERE attempt > 0 AND priority = 2"))
    first.send_signal(signal.SIGKILL)
    fleet.worker(0.02)
    fleet.drained()
    check_each_once(queue, 150)


def test_a_flushed_redis_loses_no_urgent_job(queue: Queue, redis: Redis, fleet: WorkerFleet) -> None:
    enqueue(queue, 100)
    fleet.worker(2)
    eventually(lambda: queue.count("running") > 5)
    queue.producer.enqueue_many([(Echo(text=f"ok {n}"), EnqueueOptions(priority=2)) for n in range(60)])
    eventually(lambda: redis.llen(URGENT_KEY) or queue.count("succeeded") == 160)
    redis.flushall()
    fleet.worker(0.02)
    fleet.drained()
    check_each_once(queue, 160)


def test_a_cut_connection_runs_no_urgent_job_twice(queue: Queue, redis: Redis, patient_fleet: WorkerFleet) -> None:
    patient_fleet.worker()
    fill(queue, redis)
    [urgent] = queue.enqueue("hang on", priority=1)
    eventually(lambda: queue.job(urgent).state == "running")
    redis.client_kill_filter(_type="normal", skipme=True)
    [later] = queue.enqueue("ok", priority=1)
    eventually(lambda: succeeded(queue, [later]))
    assert (queue.job(urgent).state, queue.job(urgent).attempt) == ("running", 1)
    assert queue.count("running") == IN_FLIGHT + 1
    eventually(lambda: redis.hlen(UNACKED) >= IN_FLIGHT + 1)  # adopted, not run again


def test_sigterm_finishes_or_releases_urgent_jobs_and_returns_their_messages(
    queue: Queue, redis: Redis, patient_fleet: WorkerFleet
) -> None:
    worker = patient_fleet.worker(shutdown_deadline_seconds=0.5)
    fill(queue, redis)
    enqueue_hanging(queue, IN_FLIGHT + 3, priority=1)
    eventually(lambda: queue.count("running") == 2 * IN_FLIGHT)
    queue.rows("UPDATE queue_control SET paused = true")  # what is released stays in Postgres
    worker.terminate()
    assert worker.wait(PATIENCE) == 0
    assert (queue.count("running"), redis.hlen(UNACKED)) == (0, 0)
    assert queue.rows("SELECT max(failures) FROM job") == [(0,)]


def test_messages_of_both_kinds_stay_invisible_while_they_are_held(queue: Queue, redis: Redis) -> None:
    app = make_worker_app(queue.settings, lambda _: FakeClient())
    broker = Broker(queue.settings)
    broker.publish([Hint(uuid4(), 1)], [Hint(uuid4(), 1)], engine="first")
    broker.close()
    held: list[str] = []
    with app.connection_for_read() as connection:
        consumers = [
            app.amqp.TaskConsumer(
                connection.channel(), queues=[of], on_message=lambda message: held.append(message.delivery_tag)
            )
            for of in (ordinary_queue("first"), urgent_queue("first"))
        ]
        for consumer in consumers:
            consumer.consume()
        while len(held) < len(consumers):
            connection.drain_events(timeout=PATIENCE)
        redis.zadd(UNACKED_INDEX, dict.fromkeys(held, 1.0))
        refresh(SimpleNamespace(task_consumer=consumers[0], urgent_consumer=consumers[1]))
        assert all(score > 1.0 for _, score in redis.zrange(UNACKED_INDEX, 0, -1, withscores=True))
        assert redis.zcard(UNACKED_INDEX) == len(held)
    app.close()
