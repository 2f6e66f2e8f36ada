"""A backend of its own for each test, and a door before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door, strict_client
from tests.support.openai_requests import PIECES


@pytest.fixture(autouse=True)
def plain() -> None:
    """Nothing is left of the test before."""


@pytest.fixture
def backend() -> AnsweringBackend:
    return AnsweringBackend(lambda _: PIECES)


@pytest.fixture
def address(backend: AnsweringBackend, tmp_path: Path) -> Iterator[str]:
    with door(backend, tmp_path) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[OpenAI]:
    with strict_client(address) as client:
        yield client
