"""Fixtures of the producer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


@pytest.fixture
def producer(settings: Settings) -> Iterator[Producer]:
    with Producer.from_settings(settings) as producer:
        yield producer
