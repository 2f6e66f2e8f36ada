"""A home whose path is too long for a Unix socket: Postgres, Valkey and the engine can all be reached, also as root."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from tests.support.server_folder import server_folder
from thothy_ai.db.schema import check_schema
from thothy_ai.embedded import EmbeddedStack, endpoint
from thothy_ai.embedded.process import Process, Program
from thothy_ai.embedded.readiness import Readiness
from thothy_ai.engine.api.errors import EngineAuthenticationError
from thothy_ai.engine.serving.client import connect
from thothy_ai.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def home() -> Iterator[Path]:
    """With a path of more than 150 characters and some that need quoting."""
    with server_folder() as top:
        home = top / "a folder of the team's, with a long name" / "of several parts" / ("x" * 100) / ".thothy"
        assert len(str(home)) > 150
        yield home


@contextmanager
def engine(stack: EmbeddedStack) -> Iterator[None]:
    """A null engine, started as the stack starts one."""
    process = Process(
        Program(
            name="engine",
            argv=(sys.executable, "-m", "thothy_ai.cli", "engine", "--null"),
            env=stack.settings.environment(),
            log=stack.home / "logs" / "engine.log",
            ready=Readiness(stack.postgres, stack.valkey, stack.settings).of("engine"),
        )
    )
    process.start()
    try:
        yield
    finally:
        process.stop()


def model_at(url: str, token: str | None) -> str:
    async def ask() -> str:
        client = connect(url, token)
        await client.start()
        try:
            return (await client.info()).model
        finally:
            await client.close()

    return asyncio.run(ask())


def test_every_part_is_reached(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, engine(stack):
        found = Settings.load(home=home)  # as another command in this home
        check_schema(found)
        with Redis.from_url(found.require_redis_url()) as client:
            assert client.ping()
        path = Path(found.require_engine_url().removeprefix("unix://"))
        assert path.is_socket()
        assert model_at(found.require_engine_url(), found.reveal_engine_token()) == "null"
    assert not path.parent.exists()


def test_over_tcp_the_stack_s_token_is_required(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint, "_folders", lambda _home: iter(()))
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, engine(stack):
        found = Settings.load(home=home)
        url, token = found.require_engine_url(), found.reveal_engine_token()
        assert url.startswith("tcp://127.0.0.1:")
        assert model_at(url, token) == "null"
        for wrong in (None, "wrong"):
            with pytest.raises(EngineAuthenticationError, match="THOTHY_ENGINE_TOKEN"):
                model_at(url, wrong)
        assert token is not None
        assert token not in (home / "logs" / "engine.log").read_text()
    [logged] = [record for record in caplog.records if record.name == endpoint.__name__]
    assert logged.levelno == logging.WARNING
    assert url in logged.getMessage()
    assert token not in caplog.text
