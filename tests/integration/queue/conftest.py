"""Fixtures of the queue's tests; what they are made of is in `tests/support/queue_bench.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from queue_bench import QUICK, Queue

from thothy_ai.db.connect import make_engine
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


@pytest.fixture
def quick(settings: Settings) -> Settings:
    registry.load_extra(("echo_kind",))
    return settings.model_copy(update=QUICK)


@pytest.fixture
def queue(quick: Settings) -> Iterator[Queue]:
    engine = make_engine(quick)
    with Producer(quick) as producer:
        yield Queue(quick, engine, producer)
    engine.dispose()
