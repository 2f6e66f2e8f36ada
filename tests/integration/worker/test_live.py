"""Live text: published by a worker while a reader watches, from the start, and only then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import Mock

import pytest
from redis import Redis

from tests.support.fake_engine import FakeClient
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.queue.live import Interest, TextPiece, TextWatcher, interest_channel, text_channel
from thothy_ai.settings import Settings
from thothy_ai.worker import live as worker_live

TICKS = 200  # of the loop, in which it connects and subscribes


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def redis(queue: Queue) -> Iterator[Redis]:
    with Redis.from_url(queue.settings.require_redis_url()) as client:
        yield client


def heard(live: TextWatcher, characters: int) -> str:
    """The text that a watcher gets, up to so many characters."""
    text, until = "", time.monotonic() + PATIENCE
    while len(text) < characters:
        assert time.monotonic() < until, f"only {text!r} was heard"
        if piece := live.next(0.5):
            assert piece.at == len(text)
            text += piece.text
    return text


def test_a_watched_job_s_text_is_heard_from_the_start_by_late_watchers_too(queue: Queue, client: FakeClient) -> None:
    client.said = ["one ", "two "]
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: client.submitted)
        with closing(TextWatcher(queue.settings, job_id)) as first:
            assert heard(first, 8) == "one two "
            with closing(TextWatcher(queue.settings, job_id)) as late:
                assert late.next(1.0) is None  # subscribed; nothing new is written
                client.said.append("three ")
                assert heard(late, 14) == "one two three "
            last = first.next(PATIENCE)
            assert last is not None
            assert (last.at, last.text) == (8, "three ")


def test_one_announcement_before_an_attempt_is_enough(
    queue: Queue, client: FakeClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.worker.live.INTEREST_SECONDS", 10 * PATIENCE)
    client.said = ["early bird"]
    [job_id] = queue.enqueue("hang on")
    channel = interest_channel(queue.settings)
    with runner_bench(queue, client) as bench, redis.pubsub() as inbox:
        eventually(lambda: redis.pubsub_numsub(channel)[0][1])
        inbox.subscribe(text_channel(queue.settings, job_id))
        redis.publish(channel, Interest(job_id).encode())
        bench.hand_over()
        eventually(lambda: (got := inbox.get_message()) and got["type"] == "message")
    assert client.streamed == [f"{job_id}.1.0"]


def test_nothing_is_streamed_while_nobody_watches(queue: Queue, client: FakeClient) -> None:
    with runner_bench(queue, client) as bench:
        bench.work("ok one", "ok two")
        bench.settle()
        [watched, other] = bench.work("hang a", "hang b")
        with closing(TextWatcher(queue.settings, watched)) as live:
            client.said = ["text"]
            assert heard(live, 4) == "text"
        assert client.streamed == [f"{watched}.1.0"]
        assert queue.job(other).state == "running"


def test_without_redis_jobs_run_and_watchers_wait(queue: Queue, client: FakeClient) -> None:
    settings = Settings.load(**queue.settings.model_dump() | {"redis_url": "redis://127.0.0.1:9/0"})
    with runner_bench(queue, client, redis_url=settings.redis_url) as bench:
        [job_id] = bench.work("ok")
        with closing(TextWatcher(settings, job_id)) as live:
            assert live.next(0.2) is None
        bench.settle()
    assert queue.job(job_id).state == "succeeded"


def test_an_error_of_live_text_itself_ends_no_worker(
    queue: Queue, client: FakeClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def parse(data: bytes) -> None:
        read.append(data)
        raise RuntimeError("a mistake")

    monkeypatch.setattr("thothy_ai.worker.live.Interest.parse", parse)
    channel = interest_channel(queue.settings)
    with runner_bench(queue, client) as bench:
        eventually(lambda: redis.pubsub_numsub(channel)[0][1])
        redis.publish(channel, b"{}")
        eventually(lambda: read)
        [job_id] = bench.work("ok")
        bench.settle()
    assert queue.job(job_id).state == "succeeded"


def test_hostile_announcements_and_pieces_are_ignored(queue: Queue, client: FakeClient, redis: Redis) -> None:
    channel = interest_channel(queue.settings)
    with runner_bench(queue, client) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: redis.pubsub_numsub(channel)[0][1])
        for data in (b"", b"null", b"{", b"[]", b'{"job": 7, "whole": 1}', b'{"job": "x"}', b"\xff", b"[" * 100_000):
            redis.publish(channel, data)
        with closing(TextWatcher(queue.settings, job_id)) as live:
            assert live.next(0.1) is None
            endless = b'{"attempt": Infinity, "at": 0, "text": ""}'
            for data in (b"", b"null", b'{"attempt": 1}', b'{"attempt": "x", "at": 0, "text": ""}', endless):
                redis.publish(text_channel(queue.settings, job_id), data)
            client.said = ["fine"]
            assert heard(live, 4) == "fine"


def test_messages_come_back_as_they_were(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    for interest in (Interest(job_id), Interest(job_id, whole=True)):
        assert Interest.parse(interest.encode().encode()) == interest
    assert TextPiece.parse(TextPiece(2, 7, "é\n").encode().encode()) == TextPiece(2, 7, "é\n")


def test_it_ends_whenever_it_is_cancelled(queue: Queue) -> None:
    """redis-py's own timeouts lose some cancellations before Python 3.12, and a worker never ended."""

    async def cancel_at_any_tick() -> None:
        monitor = Mock(is_ready=False, info=None)
        for ticks in range(TICKS):
            listening = asyncio.create_task(worker_live.LivePublisher(queue.settings, monitor).run())
            for _ in range(ticks):
                await asyncio.sleep(0)
            listening.cancel()
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait([listening])
            assert listening.cancelled()

    asyncio.run(cancel_at_any_tick())
