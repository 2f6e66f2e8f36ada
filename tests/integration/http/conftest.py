"""One door for all tests of a module, before an engine that answers what a test says; and a console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.browser import Browser, browser
from tests.support.console import Console
from tests.support.door import door, served_door, strict_client
from tests.support.engine_rows import register
from tests.support.fetched import fetched
from tests.support.queue_bench import Queue
from thothy_ai.engine.api import FinishReason
from thothy_ai.settings import Settings


@pytest.fixture(scope="module")
def backend() -> AnsweringBackend:
    return AnsweringBackend(lambda _: ["Hello."])


@pytest.fixture(scope="module")
def address(backend: AnsweringBackend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with door(backend, tmp_path_factory.mktemp("door")) as address:
        yield address


@pytest.fixture(autouse=True)
def plain(backend: AnsweringBackend) -> None:
    backend.answer, backend.reason, backend.hang = lambda _: ["Hello."], FinishReason.STOP, False


@pytest.fixture
def own(settings: Settings, tmp_path: Path) -> Settings:
    """Of a door with a database, and an engine of its own."""
    return settings.model_copy(update={"engine_url": f"unix://{tmp_path}/engine.sock"})


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[OpenAI]:
    with strict_client(address) as client:
        yield client


@pytest.fixture
def console(queue: Queue) -> Iterator[Console]:
    register(queue, "first", "m")
    with served_door(queue.settings) as address:
        yield Console(queue, address)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(fetched("fetch-chromium"), tmp_path_factory.mktemp("chromium")) as started:
        yield started
