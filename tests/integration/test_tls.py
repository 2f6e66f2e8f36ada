"""A machine that reaches Postgres and Redis over TLS only: a job from end to end; another CA, another name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.conftest import Services
from tests.support.command_line import environment_of, spawned
from tests.support.echo_kind import Echo
from tests.support.queue_bench import eventually
from tests.support.tls import Authority, tls_proxy
from thothy_ai.admin.doctor import Level, examine
from thothy_ai.admin.engines import engines
from thothy_ai.db.connect import make_engine, reaching
from thothy_ai.errors import BrokerUnreachableError, DatabaseUnreachableError
from thothy_ai.producer import Producer
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint
from thothy_ai.settings import Settings

SERVICES = ("dispatcher", "reaper", "worker")


@dataclass(frozen=True)
class Secured:
    """URLs of the test's servers behind TLS."""

    postgres: str
    redis: str
    authority: Authority

    def settings(self, plain: Settings, ca: Path, host: str = "localhost") -> Settings:
        """With these URLs, verified by this CA."""
        postgres = self.postgres.replace("localhost", host) + f"?sslmode=verify-full&sslrootcert={ca}"
        redis = self.redis.replace("localhost", host) + f"?ssl_ca_certs={ca}"
        return Settings.load(**plain.model_dump() | {"database_url": postgres, "redis_url": redis})


@pytest.fixture
def secured(quick: Settings, services: Services, tmp_path: Path) -> Iterator[Secured]:
    authority = Authority(tmp_path / "ca")
    context = authority.server("server")
    database, password = urlsplit(quick.require_database_url()), services.valkey.password
    with (
        tls_proxy(context, services.postgres.port, postgres=True) as postgres,
        tls_proxy(context, services.valkey.port) as redis,
    ):
        yield Secured(
            f"postgresql://{database.username}:{database.password}@localhost:{postgres}{database.path}",
            f"rediss://:{password}@localhost:{redis}/0",
            authority,
        )


def test_a_whole_machine_behind_tls(secured: Secured, quick: Settings, tmp_path: Path) -> None:
    settings = secured.settings(quick, secured.authority.certificate)
    settings = settings.model_copy(update={"engine_url": f"unix://{tmp_path}/e.sock"})
    running = [spawned(environment_of(settings), "engine", "--null")]
    running += [spawned(environment_of(settings), service) for service in SERVICES]
    try:
        with Producer(settings) as producer:
            job = producer.enqueue(Echo(text="over TLS"))
            eventually(lambda: job.refresh().attempt > 0)
        engine = make_engine(settings)
        eventually(lambda: [each.state for each in engines(engine)] == ["ready"])
        engine.dispose()
        checked = examine(lambda: settings, ("postgres", "redis", "engines"))
        assert {finding.level for finding in checked} <= {Level.OK, Level.WARNING}, checked
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("wrong", ["ca", "host"])
def test_another_ca_and_another_name_are_refused(secured: Secured, quick: Settings, tmp_path: Path, wrong: str) -> None:
    """The certificate is for `localhost`, not for 127.0.0.1."""
    ca = Authority(tmp_path / "other").certificate if wrong == "ca" else secured.authority.certificate
    settings = secured.settings(quick, ca, "127.0.0.1" if wrong == "host" else "localhost")
    engine, broker = make_engine(settings), Broker(settings)
    with pytest.raises(DatabaseUnreachableError, match="certificate"), reaching(settings):
        engine.connect()
    with pytest.raises(BrokerUnreachableError, match=r"(?i)certificate"):
        broker.depth("first")
    with pytest.raises(BrokerUnreachableError, match=r"(?i)certificate"):
        broker.publish([Hint(uuid4(), 1)], engine="first")
    broker.close()
    engine.dispose()
