"""Whole workers, as processes, over real Valkey and Postgres: drained, killed, flushed, cut off and lied to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from echo_kind import Echo
from queue_bench import QUICK, Queue, eventually
from redis import Redis

from thothy_ai.broker import Broker
from thothy_ai.dispatcher import Dispatcher
from thothy_ai.reaper import Reaper
from thothy_ai.settings import Settings
from thothy_ai.worker.hints import Hint

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "tests" / "support" / "worker_process.py"
KEY, UNACKED = "thothy:jobs", "thothy:unacked"


def environment(settings: Settings) -> dict[str, str]:
    chosen = {f"THOTHY_{name.upper()}": str(value) for name, value in QUICK.items()}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("THOTHY_")},
        **chosen,
        "THOTHY_KINDS": "echo_kind",
        "THOTHY_HOME": str(settings.home),
        "THOTHY_DATABASE_URL": settings.require_database_url(),
        "THOTHY_REDIS_URL": settings.require_redis_url(),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(WORKER.parent))),
    }


class Crowd:
    """A dispatcher, a reaper and worker processes."""

    def __init__(self, queue: Queue, log: Path, stack: ExitStack) -> None:
        self.queue = queue
        self.log = log
        self._stack = stack
        for loop in (Dispatcher(queue.settings), Reaper(queue.settings)):
            thread = threading.Thread(target=loop.run)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(loop.stop)

    def worker(self, seconds: float = 0.0, **changes: object) -> subprocess.Popen[bytes]:
        env = environment(self.queue.settings) | {
            f"THOTHY_{name.upper()}": str(value) for name, value in changes.items()
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen([sys.executable, WORKER, str(seconds)], env=env, stdout=log, stderr=log)
        self._stack.callback(self._end, process)
        return process

    def drained(self, seconds: float = 40) -> None:
        eventually(lambda: not self.queue.open(), seconds)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.fixture
def crowd(queue: Queue, tmp_path: Path) -> Iterator[Crowd]:
    log = tmp_path / "workers.log"
    with ExitStack() as stack:
        yield Crowd(queue, log, stack)
    print(log.read_text() if log.exists() else "no worker")  # noqa: T201 - shown when the test failed


def enqueue(queue: Queue, jobs: int) -> None:
    queue.producer.enqueue_many([Echo(text=f"ok {number}") for number in range(jobs)])


def check_each_once(queue: Queue, jobs: int) -> None:
    """Every job succeeded, and has exactly one artifact and one succeeded attempt."""
    assert queue.count("succeeded") == jobs
    assert queue.rows("SELECT count(*), count(DISTINCT job_id) FROM artifact WHERE verdict = 'accepted'") == [
        (jobs, jobs)
    ]
    assert queue.rows("SELECT count(*), count(DISTINCT job_id) FROM attempt WHERE outcome = 'succeeded'") == [
        (jobs, jobs)
    ]


@contextmanager
def redis_of(queue: Queue) -> Iterator[Redis]:
    with Redis.from_url(queue.settings.require_redis_url()) as client:
        yield client


def test_a_drain_leaves_nothing_behind_and_sigterm_ends_an_idle_worker(queue: Queue, crowd: Crowd) -> None:
    enqueue(queue, 200)
    worker = crowd.worker()
    crowd.drained()
    with redis_of(queue) as redis:
        eventually(lambda: redis.llen(KEY) == 0 and redis.hlen(UNACKED) == 0)
    check_each_once(queue, 200)
    assert queue.rows("SELECT count(*) FROM job_event") == [(0,)]
    worker.terminate()
    assert worker.wait(10) == 0


def test_sigkill_amid_a_drain_loses_nothing_and_doubles_nothing(queue: Queue, crowd: Crowd) -> None:
    enqueue(queue, 150)
    first = crowd.worker(0.4)
    eventually(lambda: queue.count("succeeded") > 10 and queue.count("running") > 5)
    first.send_signal(signal.SIGKILL)
    crowd.worker(0.02)
    crowd.drained()
    check_each_once(queue, 150)
    assert queue.rows("SELECT count(*) FROM attempt WHERE outcome = 'lost'")[0][0] > 0


def test_a_flushed_redis_loses_nothing_and_doubles_nothing(queue: Queue, crowd: Crowd) -> None:
    enqueue(queue, 200)
    crowd.worker(0.1)
    eventually(lambda: queue.count("succeeded") > 20)
    with redis_of(queue) as redis:
        redis.flushall()
    crowd.drained()
    check_each_once(queue, 200)
    assert queue.rows("SELECT count(*) FROM job_event WHERE event = 'republished'")[0][0] > 0


def test_a_cut_connection_to_redis_runs_nothing_twice(queue: Queue, crowd: Crowd) -> None:
    enqueue(queue, 100)
    crowd.worker(0.3)
    eventually(lambda: queue.count("running") > 10)
    with redis_of(queue) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    crowd.drained()
    check_each_once(queue, 100)
    assert queue.rows("SELECT count(*) FROM attempt") == [(100,)]


def test_a_cut_connection_to_postgres_ends_nothing(queue: Queue, crowd: Crowd) -> None:
    enqueue(queue, 100)
    worker = crowd.worker(0.1)
    eventually(lambda: queue.count("succeeded") > 10)
    queue.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'thothy-%' AND pid <> pg_backend_pid()"
    )
    crowd.drained()
    check_each_once(queue, 100)
    assert worker.poll() is None


def test_sigterm_amid_a_drain_releases_without_using_an_attempt(queue: Queue, crowd: Crowd) -> None:
    [slow] = queue.enqueue("hang on", priority=9)
    enqueue(queue, 60)
    first = crowd.worker(0.1, drain_deadline_seconds=1)
    eventually(lambda: queue.job(slow).state == "running" and queue.count("succeeded") > 10)
    first.terminate()
    assert first.wait(15) == 0
    assert queue.count("running") == 0
    assert queue.job(slow).failures == 0
    assert queue.outcomes(slow) == ["released"]
    assert queue.producer.cancel(slow)
    crowd.worker()
    crowd.drained()
    check_each_once(queue, 60)
    assert queue.rows("SELECT max(failures) FROM job") == [(0,)]


def test_sigquit_releases_at_once(queue: Queue, crowd: Crowd) -> None:
    [slow] = queue.enqueue("hang on")
    worker = crowd.worker(drain_deadline_seconds=60)
    eventually(lambda: queue.count("running") == 1)
    worker.send_signal(signal.SIGQUIT)
    worker.wait(15)
    assert queue.outcomes(slow) == ["released"]


def test_hostile_and_malformed_messages_are_dropped_and_end_no_worker(queue: Queue, crowd: Crowd) -> None:
    [job_id] = queue.enqueue("ok")
    queue.dispatch()
    with redis_of(queue) as redis:
        for element in hostile(queue):
            redis.lpush(KEY, element)
    broker = Broker(queue.settings)
    broker.publish([Hint(uuid4(), 1), Hint(job_id, 99), Hint(job_id, 1), Hint(job_id, 1)])
    broker.close()
    worker = crowd.worker()
    crowd.drained()
    with redis_of(queue) as redis:
        eventually(lambda: redis.llen(KEY) == 0 and redis.hlen(UNACKED) == 0)
    enqueue(queue, 50)
    crowd.drained()
    check_each_once(queue, 51)
    assert worker.poll() is None


def hostile(queue: Queue) -> list[bytes]:
    """What anybody who reaches Redis could push."""
    broker = Broker(queue.settings)
    broker.publish([Hint(uuid4(), 1)])
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


def test_a_worker_without_an_engine_waits_and_claims_nothing(queue: Queue, crowd: Crowd) -> None:
    env = environment(queue.settings)
    main = "from thothy_ai.settings import Settings; from thothy_ai.worker import main; main(Settings.load())"
    worker = subprocess.Popen([sys.executable, "-c", main], env=env, stderr=subprocess.DEVNULL)
    try:
        [job_id] = queue.enqueue("ok")
        with redis_of(queue) as redis:
            eventually(lambda: redis.hlen(UNACKED) == 1)
        waiting_since = queue.job(job_id).dispatched_at
        eventually(lambda: queue.job(job_id).dispatched_at > waiting_since)
        assert (queue.job(job_id).attempt, worker.poll()) == (0, None)
        worker.terminate()
        assert worker.wait(10) == 0
    finally:
        worker.kill()
        worker.wait()
