"""Webhooks under test: their secrets, a deliverer beside the test, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr

from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.queue.webhooks.deliverer import Deliverer

SECRET, OLD_SECRET = "a secret of 24 characters", "an old secret of 24 characters"
OPTIONS = {
    "webhook_secrets": SecretStr(f"{SECRET}, {OLD_SECRET}"),
    "webhook_networks": ("127.0.0.0/8",),
}


@contextmanager
def delivering(queue: Queue, **changes: object) -> Iterator[None]:
    with Deliverer(queue.settings.model_copy(update=OPTIONS | changes)).running():
        yield


def deliveries(queue: Queue) -> list[Any]:
    return queue.rows("SELECT * FROM webhook_delivery ORDER BY created_at")


def drain(queue: Queue) -> None:
    with runner_bench(queue) as bench:
        bench.settle()
