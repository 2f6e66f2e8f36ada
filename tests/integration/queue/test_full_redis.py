"""A Redis that refuses writes, as it does on a full disk: workers wait, and go on with what they have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import WorkerFleet, check_each_once, enqueue

Full = Callable[[Redis], None]


def no_memory(redis: Redis) -> None:
    redis.config_set("maxmemory", 1)


def no_writes(redis: Redis) -> None:
    """The effect of a full disk: every write is refused. A replica without its master refuses likewise."""
    redis.config_set("min-replicas-to-write", 1)


def connections(redis: Redis) -> int:
    return int(redis.info("clients")["connected_clients"])  # type: ignore[index]


@contextmanager
def room(redis: Redis) -> Iterator[None]:
    try:
        yield
    finally:
        redis.config_set("maxmemory", 0)
        redis.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize("full", [no_memory, no_writes])
def test_a_redis_that_is_full_ends_no_worker_and_loses_no_attempt(queue: Queue, fleet: WorkerFleet, full: Full) -> None:
    enqueue(queue, 150)
    worker = fleet.worker(0.3, lease_seconds=1000)
    eventually(lambda: queue.count("succeeded") > 10)
    with Redis.from_url(queue.settings.require_redis_url()) as redis:
        with room(redis):
            full(redis)
            eventually(lambda: queue.count("running") == 0)  # what it had is finished meanwhile
            time.sleep(6)  # how long the outage lasts: the worker tries to consume again and again
            assert connections(redis) < 12
        fleet.drained()
        check_each_once(queue, 150)
        assert worker.poll() is None
        assert queue.rows("SELECT count(*) FROM attempt WHERE outcome <> 'succeeded'") == [(0,)]
        assert connections(redis) < 12
