"""The transport delivers what waits in batches, within the prefetch count, and acknowledges in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from tests.support.queue_bench import Queue
from tests.support.queue_consumer import OTHER_ENGINE, Consumer, publish
from tests.support.worker_fleet import KEY, UNACKED
from thothy_ai.queue.qos import MAX_BYTES, MAX_TAKEN

INDEX = "thothy:unacked_index"
PLACES = MAX_TAKEN + 8


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def calls(redis: Redis, command: str) -> int:
    stats: Any = redis.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def records(redis: Redis) -> tuple[Any, Any]:
    return redis.hlen(UNACKED), redis.zcard(INDEX)


def test_what_waits_comes_in_order_within_the_prefetch_count(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    ids = publish(queue, 2 * PLACES)
    consumer = Consumer(queue, stack, PLACES)
    before = {command: calls(redis, command) for command in ("brpop", "eval", "hdel")}
    consumer.until(lambda: len(consumer.messages) >= PLACES)
    consumer.turn()
    assert consumer.ids == ids[:PLACES]
    assert (redis.llen(KEY), *records(redis)) == (PLACES, PLACES, PLACES)
    assert calls(redis, "brpop") - before["brpop"] == 2
    assert calls(redis, "eval") - before["eval"] == 2
    for message in consumer.messages[: PLACES // 2]:
        message.ack()
    consumer.until(lambda: len(consumer.messages) >= PLACES + PLACES // 2)
    assert calls(redis, "hdel") - before["hdel"] == 1
    assert consumer.ids == ids[: PLACES + PLACES // 2]
    assert records(redis) == (PLACES, PLACES)


def test_what_is_recorded_is_what_kombu_records(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    """One message comes by BRPOP and is recorded by kombu, the other by the script: their records differ in nothing."""
    publish(queue, 2, OTHER_ENGINE)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == 2)
    for message in consumer.messages:
        raw, exchange, routing_key = json.loads(redis.hget(UNACKED, message.delivery_tag))  # type: ignore[arg-type]
        assert raw == message._raw
        assert (exchange, routing_key) == ("", message.delivery_info["routing_key"])
        assert redis.zscore(INDEX, message.delivery_tag)


def test_every_list_has_its_turn(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    publish(queue, 10 * PLACES)
    [wanted] = publish(queue, 1, OTHER_ENGINE)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) >= PLACES)
    assert wanted in consumer.ids


def test_a_kombu_list_of_another_priority_is_consumed_too(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    [late] = publish(queue, 1)
    redis.rename(KEY, f"{KEY}\x06\x169")
    ids = publish(queue, 3)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == 4)
    assert consumer.ids == [*ids, late]


def test_what_is_no_message_is_dropped_wherever_it_stands(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    first, second = publish(queue, 2)
    honest: Any = redis.lpop(KEY)
    delivery = {"exchange": "", "routing_key": "jobs@first"}
    elements: list[Any] = [
        {"properties": {"delivery_tag": "x"}, "body": {"__type__": "decimal", "__value__": "x"}},
        {"properties": {"delivery_tag": None, "delivery_info": delivery}},
        {"properties": {"delivery_tag": True, "delivery_info": delivery}},
        {"properties": {"delivery_tag": ["x"], "delivery_info": delivery}},
        {"properties": {"delivery_tag": 1}},
        [],
        "x" * MAX_BYTES,
    ]
    redis.lpush(KEY, b"{", b"[" * 100_000, *(json.dumps(element).encode() for element in elements), honest)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == 2)
    consumer.until(lambda: records(redis) == (2, 2))
    assert consumer.ids == [first, second]
    assert redis.llen(KEY) == 0


def test_a_channel_that_closes_acknowledges_first_and_restores_the_rest(
    queue: Queue, redis: Redis, stack: ExitStack
) -> None:
    ids = publish(queue, 6)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == 6)
    for message in consumer.messages[:4]:
        message.ack()
    consumer.connection.close()
    consumer.turn()
    assert records(redis) == (0, 0)
    waiting: Any = redis.lrange(KEY, 0, -1)
    assert sorted(json.loads(message)["headers"]["id"] for message in waiting) == sorted(ids[4:])


def test_what_comes_while_the_channel_closes_is_acknowledged_too(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    """Kombu reads the answer to BRPOP then. The event loop, which goes on, finds nothing more to do."""
    consumer = Consumer(queue, stack, PLACES)
    consumer.consumer.on_message = lambda message: (consumer.messages.append(message), message.ack())
    ids = publish(queue, 1)
    consumer.connection.transport.cycle.on_poll_start()  # sends BRPOP
    consumer.connection.close()
    consumer.turn()
    assert consumer.ids == ids
    assert (redis.llen(KEY), *records(redis)) == (0, 0, 0)


def test_what_comes_when_nobody_consumes_any_more_goes_back(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    publish(queue, 1)
    consumer = Consumer(queue, stack, PLACES)
    consumer.connection.transport.cycle.on_poll_start()  # sends BRPOP
    consumer.consumer.cancel()
    consumer.connection.close()
    assert (redis.llen(KEY), *records(redis), consumer.ids) == (1, 0, 0, [])


def test_a_channel_that_redis_does_not_let_close_leaves_nothing_to_do(
    queue: Queue, redis: Redis, stack: ExitStack
) -> None:
    publish(queue, 1)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == 1)
    consumer.messages[0].ack()
    redis.config_set("min-replicas-to-write", 1)
    stack.callback(redis.config_set, "min-replicas-to-write", 0)
    consumer.connection.transport.cycle.on_poll_start()  # sends BRPOP, which is refused
    consumer.connection.close()
    consumer.turn()


@pytest.mark.parametrize("count", [1, 2])
def test_a_message_that_comes_twice_is_recorded_again(queue: Queue, redis: Redis, stack: ExitStack, count: int) -> None:
    """Another worker restored it, since this one was suspended for long. The last one comes by BRPOP or by script."""
    ids = publish(queue, count)
    consumer = Consumer(queue, stack, PLACES)
    consumer.until(lambda: len(consumer.messages) == count)
    for message in tuple(consumer.messages):
        consumer.channel.qos.restore_by_tag(message.delivery_tag)
    assert records(redis) == (0, 0)
    consumer.until(lambda: len(consumer.messages) == 2 * count)
    assert sorted(consumer.ids) == sorted(2 * ids)
    assert records(redis) == (count, count)
    for message in consumer.messages:
        message.ack()
    consumer.until(lambda: records(redis) == (0, 0))


def test_a_record_that_cannot_be_read_is_dropped(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    """A worker that starts restores what others left."""
    redis.hset(UNACKED, mapping={"x": b"{", "y": b'[{"__type__": "decimal", "__value__": "x"}, "", "jobs"]'})
    redis.zadd(INDEX, {"x": 0, "y": 0})
    Consumer(queue, stack, PLACES)
    assert records(redis) == (0, 0)
