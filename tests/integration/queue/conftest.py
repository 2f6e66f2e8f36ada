"""What several tests of the queue use: Redis, an hour to close, a receiver of webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from redis import Redis

from tests.support.hours import wait_out_the_hour
from tests.support.queue_bench import Queue
from tests.support.webhook_receiver import Receiver, receiver


@pytest.fixture
def hour(queue: Queue) -> datetime:
    """The hour that is closed next: from three hours ago on."""
    wait_out_the_hour()
    [row] = queue.rows("SELECT date_trunc('hour', now()) - interval '3 hours' AS hour")
    queue.rows("UPDATE usage_progress SET closed_until = :hour", hour=row.hour)
    return row.hour.astimezone(UTC)  # type: ignore[no-any-return]


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made
