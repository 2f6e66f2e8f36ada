"""A batch holds what Redis has recorded, unchanged and within the prefetch count, and leaves what is for kombu."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from tests.support.queue_bench import Queue
from tests.support.queue_consumer import ENGINE, OTHER_ENGINE, publish
from tests.support.worker_fleet import KEY, UNACKED
from thothy_ai.queue.app import QueueApp, make_app
from thothy_ai.queue.hints import list_names
from thothy_ai.queue.qos import MAX_BYTES, MAX_TAKEN

FIRST, SECOND = (list_names(engine).ordinary for engine in (ENGINE, OTHER_ENGINE))
TAG = b'{"properties": {"delivery_tag": "%b"}}'


@pytest.fixture
def channel(queue: Queue) -> Iterator[Any]:
    """A channel outside of an event loop."""
    with make_app(queue.settings, QueueApp) as app, app.connection_for_read() as connection:
        yield connection.channel()


@pytest.fixture
def redis(redis: Redis) -> Iterator[Redis]:
    yield redis
    redis.config_set("maxmemory", 0)
    redis.config_set("min-replicas-to-write", 0)


def taken_ids(channel: Any, *names: str) -> list[str]:
    return [json.loads(taken.text)["headers"]["id"] for taken in channel.qos.take(names)]


@pytest.mark.parametrize(("places", "expected"), [(0, MAX_TAKEN), (5, 5), (2 * MAX_TAKEN, MAX_TAKEN)])
def test_as_many_are_taken_as_have_a_place(
    queue: Queue, redis: Redis, channel: Any, places: int, expected: int
) -> None:
    ids = publish(queue, MAX_TAKEN + 1)
    channel.basic_qos(0, places, False)
    assert taken_ids(channel, FIRST) == ids[:expected]
    assert redis.hlen(UNACKED) == expected


def test_a_prefetch_count_that_fell_below_what_is_held_takes_nothing(queue: Queue, redis: Redis, channel: Any) -> None:
    publish(queue, 7)
    channel.basic_qos(0, 5, False)
    first, second, *_ = channel.qos.take([FIRST])
    channel.basic_qos(0, 4, False)
    assert channel.qos.take([FIRST]) == []
    channel.basic_ack(first.tag)
    assert channel.qos.take([FIRST]) == []
    channel.basic_ack(second.tag)
    assert len(channel.qos.take([FIRST])) == 1
    assert redis.hlen(UNACKED) == 4


def test_the_lists_are_taken_from_in_their_order(queue: Queue, channel: Any) -> None:
    ours, others = publish(queue, 2), publish(queue, 2, OTHER_ENGINE)
    channel.basic_qos(0, 3, False)
    assert taken_ids(channel, "nothing", SECOND, FIRST) == [*others, ours[0]]
    assert channel.qos.take([]) == []


@pytest.mark.parametrize(
    "text",
    [
        b' {"properties":  {"delivery_tag": "a-1"}, "body": "\xff\xfe \\u00e9 \xc3\xa9 \\/ \x7f"} \n',
        b'{"properties": {"delivery_tag": "b", "delivery_tag": "a-1"}, "x": 12345678901234567890123, "y": 1e-400}',
        b'{"properties": {"delivery_tag": "\\u0061-1"}, "x": [], "y": {}, "z": null, "deep": %b1%b}'
        % (b"[" * 900, b"]" * 900),
        b'{"properties": {"delivery_tag": "a-1"}, "x": "%b"}' % (b"x" * (MAX_BYTES - 50)),
    ],
)
def test_a_record_holds_the_text_as_it_is(redis: Redis, channel: Any, text: bytes) -> None:
    redis.lpush(KEY, text)
    assert channel.qos.take([FIRST]) == [(FIRST, text, "a-1")]
    assert redis.hgetall(UNACKED) == {b"a-1": b'[%b,"","%b"]' % (text, FIRST.encode())}


@pytest.mark.parametrize(
    "element",
    [
        b"{",
        b"1",
        b"[" * 1_100 + b"]" * 1_100,
        b'{"properties": null}',
        b'{"properties": {"delivery_tag": null}}',
        b'{"properties": {"delivery_tag": 1}}',
        TAG % b"",
        TAG % b"\xff",
        TAG % b"\\u00e9",
        TAG % b"a b",
        TAG % b"a" + b"x",
        b'{"properties": {"delivery_tag": "x"}, "body": "%b"}' % (b"x" * MAX_BYTES),
    ],
)
def test_a_list_is_left_at_what_may_be_no_message(queue: Queue, redis: Redis, channel: Any, element: bytes) -> None:
    """It is for kombu, one at a time. The other lists are not left."""
    [first], [other] = publish(queue, 1), publish(queue, 1, OTHER_ENGINE)
    redis.lpush(KEY, element)
    publish(queue, 1)
    assert taken_ids(channel, FIRST, SECOND) == [first, other]
    assert redis.lindex(KEY, -1) == element
    assert (redis.llen(KEY), redis.hlen(UNACKED)) == (2, 2)


@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
def test_what_a_redis_that_is_full_cannot_record_stays_in_its_list(
    queue: Queue, redis: Redis, channel: Any, setting: str
) -> None:
    publish(queue, 3)
    redis.config_set(setting, 1)
    with pytest.raises(ResponseError):
        channel.qos.take([FIRST])
    assert (redis.llen(KEY), redis.hlen(UNACKED)) == (3, 0)
    redis.config_set(setting, 0)
    assert len(channel.qos.take([FIRST])) == 3


def test_a_refused_acknowledgement_ends_nothing_and_frees_its_place(queue: Queue, redis: Redis, channel: Any) -> None:
    publish(queue, 2)
    channel.basic_qos(0, 1, False)
    [taken] = channel.qos.take([FIRST])
    assert not channel.qos.can_consume()
    redis.config_set("min-replicas-to-write", 1)
    channel.basic_ack(taken.tag)
    assert channel.qos.can_consume()
    assert redis.hexists(UNACKED, taken.tag)


def test_a_tag_of_a_message_that_could_not_be_read_may_come_again(redis: Redis, channel: Any) -> None:
    """The script reads a number that Python refuses. Then the tag is a message's that kombu records."""
    redis.lpush(KEY, b'{"properties": {"delivery_tag": "a"}, "x": 0x1}')
    [taken] = channel.qos.take([FIRST])
    channel.basic_ack(taken.tag)
    assert redis.hlen(UNACKED) == 0
    delivery = {"exchange": "", "routing_key": FIRST}
    message = {"properties": {"delivery_tag": "a", "delivery_info": delivery}, "body": ""}
    channel.qos.append(channel.message_to_python(message), "a")
    assert redis.hexists(UNACKED, "a")
