"""The transport takes what waits in batches, within the prefetch count, and acknowledges in batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from kombu.asynchronous import Hub
from redis import Redis
from redis.exceptions import ResponseError

from tests.support.queue_bench import PATIENCE, Queue
from tests.support.worker_fleet import KEY, UNACKED
from thothy_ai.queue.app import QueueApp, make_app, ordinary_queue
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import NO_ENGINE, Hint, task_id
from thothy_ai.queue.transport import MAX_TAKEN

INDEX = "thothy:unacked_index"
PLACES = MAX_TAKEN + 8
ENGINE = "first"


class Consumer:
    """Consumes the lists of two engines in an event loop, as a worker does, and keeps what comes."""

    def __init__(self, queue: Queue, stack: ExitStack) -> None:
        app = make_app(queue.settings, QueueApp)
        stack.callback(app.close)
        self.connection: Any = stack.enter_context(app.connection_for_read())
        self.channel = self.connection.channel()
        self.channel.basic_qos(0, PLACES, False)
        self.messages: list[Any] = []
        queues = [ordinary_queue(), ordinary_queue(ENGINE)]
        consumer: Any = app.amqp.TaskConsumer(self.channel, queues=queues)  # type: ignore[attr-defined]
        consumer.on_message = self.messages.append
        consumer.consume()
        hub = Hub()
        stack.callback(hub.close)
        self.connection.register_with_event_loop(hub)
        self._turns = hub.create_loop()

    @property
    def ids(self) -> list[str]:
        return [message.headers["id"] for message in self.messages]

    def turn(self) -> None:
        next(self._turns)

    def until(self, condition: Callable[[], bool]) -> None:
        """Turns take up to a second."""
        for _ in range(PATIENCE):
            if condition():
                return
            self.turn()
        raise AssertionError("it never holds")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def publish(queue: Queue, count: int, engine: str = NO_ENGINE) -> list[str]:
    hints = [Hint(uuid4(), 1) for _ in range(count)]
    broker = Broker(queue.settings)
    broker.publish(hints, engine=engine)
    broker.close()
    return list(map(task_id, hints))


def calls(redis: Redis, command: str) -> int:
    stats: Any = redis.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_what_waits_comes_in_order_within_the_prefetch_count(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    ids = publish(queue, 2 * PLACES)
    consumer = Consumer(queue, stack)
    before = {command: calls(redis, command) for command in ("brpop", "eval", "hset", "hdel")}
    consumer.until(lambda: len(consumer.messages) >= PLACES)
    consumer.turn()
    assert consumer.ids == ids[:PLACES]
    assert (redis.llen(KEY), redis.hlen(UNACKED), redis.zcard(INDEX)) == (PLACES, PLACES, PLACES)
    assert calls(redis, "brpop") - before["brpop"] == 2
    assert calls(redis, "eval") - before["eval"] == 2
    for message in consumer.messages[: PLACES // 2]:
        message.ack()
    consumer.until(lambda: len(consumer.messages) >= PLACES + PLACES // 2)
    assert calls(redis, "hdel") - before["hdel"] == 1
    assert consumer.ids == ids[: PLACES + PLACES // 2]
    assert redis.hlen(UNACKED) == redis.zcard(INDEX) == PLACES


def test_what_is_recorded_is_what_kombu_records(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    """One message comes by BRPOP and is recorded by kombu, the other by the script: their records differ in nothing."""
    publish(queue, 2, ENGINE)
    consumer = Consumer(queue, stack)
    consumer.until(lambda: len(consumer.messages) == 2)
    for message in consumer.messages:
        raw, exchange, routing_key = json.loads(redis.hget(UNACKED, message.delivery_tag))  # type: ignore[arg-type]
        assert raw == message._raw
        assert (exchange, routing_key) == ("", message.delivery_info["routing_key"])
        assert redis.zscore(INDEX, message.delivery_tag)


def test_every_list_has_its_turn(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    publish(queue, 10 * PLACES)
    [wanted] = publish(queue, 1, ENGINE)
    consumer = Consumer(queue, stack)
    consumer.until(lambda: len(consumer.messages) >= PLACES)
    assert wanted in consumer.ids


def test_what_is_no_message_is_dropped_wherever_it_stands(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    tagged = {"properties": {"delivery_tag": "x"}, "body": {"__type__": "decimal", "__value__": "x"}}
    first, second = publish(queue, 2)
    honest: Any = redis.lpop(KEY)
    redis.lpush(KEY, b"{", json.dumps(tagged).encode(), b"[" * 100_000, b'{"properties": {"delivery_tag": 1}}', honest)
    consumer = Consumer(queue, stack)
    consumer.until(lambda: len(consumer.messages) == 2)
    consumer.until(lambda: redis.hlen(UNACKED) == 2)
    assert consumer.ids == [first, second]
    assert redis.zcard(INDEX) == 2
    assert redis.llen(KEY) == 0


def test_a_message_stays_in_its_list_while_redis_is_full(queue: Queue, redis: Redis, stack: ExitStack) -> None:
    publish(queue, 3)
    channel = make_app(queue.settings, QueueApp).connection_for_read().channel()
    stack.callback(channel.close)
    redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ResponseError):
            channel._take([KEY.partition(":")[2]], 3)
    finally:
        redis.config_set("maxmemory", 0)
    assert (redis.llen(KEY), redis.hlen(UNACKED)) == (3, 0)


def test_a_channel_that_closes_acknowledges_first_and_restores_the_rest(
    queue: Queue, redis: Redis, stack: ExitStack
) -> None:
    ids = publish(queue, 6)
    consumer = Consumer(queue, stack)
    consumer.until(lambda: len(consumer.messages) == 6)
    for message in consumer.messages[:4]:
        message.ack()
    consumer.connection.close()
    assert (redis.hlen(UNACKED), redis.zcard(INDEX)) == (0, 0)
    waiting: Any = redis.lrange(KEY, 0, -1)
    assert sorted(json.loads(message)["headers"]["id"] for message in waiting) == sorted(ids[4:])
