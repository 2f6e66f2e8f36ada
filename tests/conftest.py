"""Real servers for the tests that need them: one Valkey and one Postgres per session, a fresh database per test."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.server_folder import server_folder
from tests.support.sweep import DEEP

if TYPE_CHECKING:  # imported where they are used: most tests need no service
    from psycopg import Connection

    from thothy_ai.embedded import Postgres, Valkey
    from thothy_ai.settings import Settings

TEMPLATE = "thothy_template"

# Several test processes share the cores: more threads would only slow each other down. Set before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OMP", "OPENBLAS", "MKL", "RAYON"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# An example may wait for a busy machine: neither its time nor that of drawing it is a failure. Examples are the same in
# every run, so that a change is judged by what it changed; `make test-deep` draws new ones.
with suppress(ImportError):  # tests on a GPU run without it
    import hypothesis

    slow, plain = [hypothesis.HealthCheck.too_slow], hypothesis.settings.default
    hypothesis.settings.register_profile(
        "patient", plain, deadline=None, suppress_health_check=slow, derandomize=not DEEP
    )
    hypothesis.settings.load_profile("patient")

# Collecting makes millions of objects that stay: the garbage collector would visit them again and again.
gc.disable()

# A shell starts background jobs with these signals ignored, which the commands that tests interrupt would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@dataclass(frozen=True)
class Services:
    """The session's servers. A test that stops or kills servers starts its own."""

    postgres: Postgres
    valkey: Valkey
    administrator: Connection[tuple[object, ...]]  # makes each test's database: to connect anew takes half as long


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """A Valkey and a Postgres with a migrated template database."""
    import psycopg
    from psycopg.sql import SQL

    from thothy_ai.db.migration import migrate
    from thothy_ai.embedded import Postgres, Valkey
    from thothy_ai.settings import Settings

    with (
        server_folder() as folder,
        Postgres(folder / "postgres", durable=False) as postgres,
        Valkey(folder / "valkey", durable=False) as valkey,
    ):
        postgres.execute(f"CREATE DATABASE {TEMPLATE}")
        migrate(Settings.load(home=folder, database_url=postgres.url_of(TEMPLATE)))
        with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as administrator:
            administrator.execute("SET scram_iterations = 1")  # 4096 take each of the tests' clients 2 ms
            administrator.execute(SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(administrator.info.password))
            yield Services(postgres, valkey, administrator)


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the THOTHY_* variables of the environment that runs the tests."""
    from thothy_ai.engine.api.options import engine_variables
    from thothy_ai.settings import Settings

    for name in (*Settings.variables(), *engine_variables()):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def empty_database(services: Services) -> Iterator[str]:
    """The URL of a database without a schema."""
    yield from _database(services, "template1")


@pytest.fixture
def database_url(services: Services) -> Iterator[str]:
    """The URL of a fresh, migrated database."""
    yield from _database(services, TEMPLATE)


@pytest.fixture
def redis_url(services: Services) -> str:
    """The URL of an emptied Redis."""
    from redis import Redis

    with Redis.from_url(services.valkey.url) as client:
        client.flushall()
    return services.valkey.url


@pytest.fixture
def settings(clean_environment: None, database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings of this test: its own home, database and emptied Redis."""
    from thothy_ai.settings import Settings

    return Settings.load(home=tmp_path / "home", database_url=database_url, redis_url=redis_url)


def _database(services: Services, template: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    services.administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY".encode())
    yield services.postgres.url_of(name)
    _drop(services, name)


def _drop(services: Services, name: str) -> None:
    """Postgres waits for connections that are being opened. One whose opening was cancelled stays so for a minute, or
    until it is collected.
    """
    statement = f"DROP DATABASE {name} WITH (FORCE)".encode()
    dropping = threading.Thread(target=services.administrator.execute, args=(statement,))
    dropping.start()
    dropping.join(1.0)
    if dropping.is_alive():
        gc.collect()
    dropping.join()
