"""Whole workers, as processes, over real servers: shut down, killed, flushed, cut off, sent hostile data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from redis import Redis

from tests.support.engine_rows import register_first
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import KEY, UNACKED, WorkerFleet, check_each_once, enqueue, environment
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint


@contextmanager
def redis_of(queue: Queue) -> Iterator[Redis]:
    with Redis.from_url(queue.settings.require_redis_url()) as client:
        yield client


def test_a_drain_leaves_nothing_behind_and_sigterm_ends_an_idle_worker(
    queue: Queue, patient_fleet: WorkerFleet
) -> None:
    enqueue(queue, 200)
    worker = patient_fleet.worker()
    patient_fleet.drained()
    with redis_of(queue) as redis:
        eventually(lambda: redis.llen(KEY) == 0 and redis.hlen(UNACKED) == 0)
    check_each_once(queue, 200)
    assert queue.rows("SELECT count(*) FROM job_event") == [(0,)]
    worker.terminate()
    assert worker.wait(PATIENCE) == 0


def test_sigkill_amid_a_drain_loses_nothing_and_doubles_nothing(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 150)
    first = fleet.worker(2)  # far from done when it is killed
    eventually(lambda: queue.count("succeeded") > 10 and queue.count("running") > 5)
    first.send_signal(signal.SIGKILL)
    fleet.worker(0.02)
    fleet.drained()
    check_each_once(queue, 150)
    assert queue.rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'")[0][0] > 0


def test_a_flushed_redis_loses_nothing_and_doubles_nothing(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 200)
    first = fleet.worker(2)  # far from done when it is flushed
    eventually(lambda: queue.count("succeeded") > 10)
    with redis_of(queue) as redis:
        redis.flushall()
    fleet.worker(0.02)
    fleet.drained()
    assert first.poll() is None
    check_each_once(queue, 200)
    assert queue.rows("SELECT count(*) FROM job_event WHERE event = 'republished'")[0][0] > 0


def test_a_cut_connection_to_redis_runs_nothing_twice(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 100)
    fleet.worker(0.3, lease_seconds=1000)
    eventually(lambda: queue.count("running"))  # on a busy machine, jobs may end as fast as others begin
    with redis_of(queue) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    fleet.drained()
    check_each_once(queue, 100)
    assert queue.rows("SELECT count(*) FROM attempt") == [(100,)]


def test_a_cut_connection_to_postgres_ends_nothing(queue: Queue, fleet: WorkerFleet) -> None:
    enqueue(queue, 100)
    worker = fleet.worker(0.1)
    eventually(lambda: queue.count("succeeded") > 10)
    queue.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'thothy-%' AND pid <> pg_backend_pid()"
    )
    fleet.drained()
    check_each_once(queue, 100)
    assert worker.poll() is None


def test_sigterm_amid_a_drain_releases_without_using_an_attempt(queue: Queue, fleet: WorkerFleet) -> None:
    [slow] = queue.enqueue("hang on", priority=9)
    enqueue(queue, 60)
    first = fleet.worker(0.1, shutdown_deadline_seconds=1, lease_seconds=1000)
    eventually(lambda: queue.job(slow).state == "running" and queue.count("succeeded") > 10)
    first.terminate()
    assert first.wait(PATIENCE) == 0
    assert queue.count("running") == 0
    assert queue.job(slow).failures == 0
    assert queue.outcomes(slow) == ["released"]
    assert queue.producer.cancel(slow)
    fleet.worker(lease_seconds=1000)
    fleet.drained()
    check_each_once(queue, 60)
    assert queue.rows("SELECT max(failures) FROM job") == [(0,)]


def test_sigquit_releases_at_once(queue: Queue, fleet: WorkerFleet) -> None:
    [slow] = queue.enqueue("hang on")
    worker = fleet.worker(shutdown_deadline_seconds=10 * PATIENCE, lease_seconds=20 * PATIENCE)
    eventually(lambda: queue.count("running") == 1)
    worker.send_signal(signal.SIGQUIT)
    worker.wait(PATIENCE)  # not for the deadline
    assert queue.outcomes(slow) == ["released"]


def test_hostile_and_malformed_messages_are_dropped_and_end_no_worker(queue: Queue, fleet: WorkerFleet) -> None:
    [job_id] = queue.enqueue("ok")
    queue.dispatch()
    with redis_of(queue) as redis:
        for element in hostile(queue):
            redis.lpush(KEY, element)
    broker = Broker(queue.settings)
    broker.publish([Hint(uuid4(), 1), Hint(job_id, 99), Hint(job_id, 1), Hint(job_id, 1)], engine="first")
    broker.close()
    worker = fleet.worker()
    fleet.drained()
    with redis_of(queue) as redis:
        eventually(lambda: redis.llen(KEY) == 0 and redis.hlen(UNACKED) == 0)
    enqueue(queue, 50)
    fleet.drained()
    check_each_once(queue, 51)
    assert worker.poll() is None


def hostile(queue: Queue) -> list[bytes]:
    """What any client of Redis could push."""
    broker = Broker(queue.settings)
    broker.publish([Hint(uuid4(), 1)], engine="first")
    broker.close()
    with redis_of(queue) as redis:
        honest = json.loads(redis.rpop(KEY))
    bodies = ["", "bm90IGpzb24=", "W10=", "W1tdLCB7fSwge31d", "WzEsIDIsIDNd", "e30=", "bnVsbA==", "gARLAS4="]
    made = [honest | {"body": body} for body in bodies]
    made += [
        honest | {"headers": headers}
        for headers in (None, {}, [], {"task": "no.such"}, {"task": 7}, honest["headers"] | {"task": "no.such"})
    ]
    made += [
        honest | {"headers": honest["headers"] | extra}
        for extra in ({"eta": "never"}, {"expires": "x"}, {"id": None}, {"timelimit": 3})
    ]
    made += [honest | {"content-type": kind} for kind in ("application/x-python-serialize", "no/such", None)]
    made += [honest | {"properties": {}}, honest | {"properties": None}, {}]
    return [json.dumps(message).encode() for message in made] + [b"", b"\xff\x00", b"[]", b"null", b"7", b"{"]


def test_a_worker_whose_loop_dies_ends_with_an_error(queue: Queue, fleet: WorkerFleet) -> None:
    """Its supervisor starts another."""
    queue.enqueue("ok")
    worker = fleet.worker(-1)  # the fake engine's client answers with nonsense
    assert worker.wait(PATIENCE) == os.EX_SOFTWARE


def test_a_worker_without_an_engine_waits_and_takes_nothing(queue: Queue, fleet: WorkerFleet) -> None:
    register_first(queue)
    env = environment(queue.settings)
    main = "from thothy_ai.settings import Settings; from thothy_ai.worker import main; main(Settings.load())"
    worker = subprocess.Popen([sys.executable, "-c", main], env=env, stderr=subprocess.DEVNULL)
    try:
        [job_id] = queue.enqueue("ok")
        with redis_of(queue) as redis:
            eventually(lambda: redis.llen(KEY) == 1)
            eventually(lambda: redis.pubsub_numsub("thothy:watch")[0][1] == 1)
            assert (redis.llen(KEY), redis.hlen(UNACKED)) == (1, 0)
        assert (queue.job(job_id).attempt, worker.poll()) == (0, None)
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()
