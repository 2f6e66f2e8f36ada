"""One door for all tests of a module, before an engine that answers what a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door, strict_client
from thothy_ai.engine.api import FinishReason


@pytest.fixture(scope="module")
def backend() -> AnsweringBackend:
    return AnsweringBackend(lambda _: ["Hello."])


@pytest.fixture(scope="module")
def address(backend: AnsweringBackend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with door(backend, tmp_path_factory.mktemp("door")) as address:
        yield address


@pytest.fixture(autouse=True)
def plain(backend: AnsweringBackend) -> None:
    backend.answer, backend.reason = lambda _: ["Hello."], FinishReason.STOP


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[OpenAI]:
    with strict_client(address) as client:
        yield client
