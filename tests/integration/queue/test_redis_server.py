"""What Redis must be and allow: a cluster, a replica and missing rights are named; the documented rights suffice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from redis import Redis

from tests.support.forwarder import forwarder
from tests.support.home import THOTHY
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue
from tests.support.worker_fleet import WorkerFleet, check_each_once, enqueue, environment
from thothy_ai.admin.doctor import Diagnosis, Level, examine
from thothy_ai.embedded import Valkey
from thothy_ai.errors import BrokerRefusedError, BrokerUnreachableError
from thothy_ai.queue import redis_server
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint
from thothy_ai.queue.redis_server import COMMANDS, refuse_unusable_redis
from thothy_ai.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
PASSWORD = "sesame"
NEEDED = [text.split(" ")[0].lower() for text in COMMANDS]


def documented_rights() -> list[str]:
    (line,) = re.findall(r"^ACL SETUSER thothy (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return str(line).replace("PASSWORD", PASSWORD).split(" ")


class Users:
    """Users of the shared Redis."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.redis: Any = Redis.from_url(settings.require_redis_url(), decode_responses=True)

    def allow(self, *changes: str) -> Settings:
        """Settings with a user that has the documented rights, changed so."""
        self.redis.execute_command("ACL", "SETUSER", "thothy", "reset", *documented_rights(), *changes)
        place = self.settings.require_redis_url().rpartition("@")[2]
        return self.settings.model_copy(update={"redis_url": SecretStr(f"redis://thothy:{PASSWORD}@{place}")})


@pytest.fixture
def users(settings: Settings) -> Iterator[Users]:
    users = Users(settings)
    yield users
    users.redis.execute_command("ACL", "DELUSER", "thothy")
    users.redis.close()


def look(settings: Settings) -> list[Diagnosis]:
    return examine(lambda: settings, ["redis"])


def wrong(settings: Settings) -> tuple[str, str]:
    (finding,) = look(settings)
    assert finding.level is Level.WRONG
    return finding.says, str(finding.fix)


def test_the_documented_rights_suffice(users: Users, queue: Queue, fleet: WorkerFleet) -> None:
    restricted = users.allow()
    users.redis.execute_command("ACL", "LOG", "RESET")
    assert [finding.level for finding in look(restricted)] == [Level.OK]
    enqueue(queue, 50)
    for command in ("dispatcher", "reaper"):
        fleet._start([*THOTHY, command], {"redis_url": restricted.require_redis_url()})
    fleet.worker(0.05, redis_url=restricted.require_redis_url())
    fleet.drained()
    check_each_once(queue, 50)
    assert users.redis.execute_command("ACL", "LOG") == []


@pytest.mark.parametrize("command", [*NEEDED, "watch", "unwatch", "multi", "exec"])
def test_a_command_that_is_denied_is_named(users: Users, command: str) -> None:
    restricted = users.allow(f"-{command}")
    says, fix = wrong(restricted)
    assert "denies its user thothy " in says
    assert command.upper() in says
    assert re.search(rf"`ACL SETUSER thothy \+{command}(\|\w+)?`", fix)
    with pytest.raises(BrokerRefusedError, match=command.upper()):
        refuse_unusable_redis(restricted)


def test_keys_and_channels_that_are_denied_are_named(users: Users) -> None:
    says, fix = wrong(users.allow("resetkeys", "~other:*", "resetchannels"))
    assert says.endswith("denies its user thothy the keys thothy:*, the channels thothy:*")
    assert "`ACL SETUSER thothy ~thothy:* &thothy:*`" in fix


def test_info_is_for_the_doctor_alone(users: Users) -> None:
    restricted = users.allow("-info")
    refuse_unusable_redis(restricted)
    fine, warning = look(restricted)
    assert (fine.level, warning.level) == (Level.OK, Level.WARNING)
    assert "INFO" in warning.says
    assert "`ACL SETUSER thothy +info`" in str(warning.fix)


def test_a_denial_while_work_goes_on_is_named(users: Users) -> None:
    broker = Broker(users.allow())
    try:
        assert broker.total() == (0, 0)
        users.allow("-smembers")
        with pytest.raises(BrokerRefusedError, match="denies its user thothy SMEMBERS"):
            broker.engines()
    finally:
        broker.close()


def test_a_refused_login_is_not_an_unreachable_redis(users: Users) -> None:
    restricted = users.allow("resetpass")
    says, fix = wrong(restricted)
    assert "refuses the password" in says
    assert "start Redis" not in fix
    refuse_unusable_redis(restricted)  # processes wait for a password that is being changed


@pytest.mark.parametrize(
    ("parameter", "value", "before", "says"),
    [
        ("maxmemory", "1", "0", "takes no writes: command not allowed when used memory > 'maxmemory'"),
        ("min-replicas-to-write", "1", "0", "refuses commands: NOREPLICAS"),
    ],
)
def test_a_redis_that_takes_no_writes(users: Users, parameter: str, value: str, before: str, says: str) -> None:
    users.redis.config_set(parameter, value)
    try:
        assert says in wrong(users.settings)[0]
    finally:
        users.redis.config_set(parameter, before)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    server = Valkey(tmp_path_factory.mktemp("cluster"), durable=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thothy_ai.embedded.valkey.CONFIG", CLUSTER_CONFIG)
        server.start()
    yield server
    server.stop()


CLUSTER_CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
cluster-enabled yes
"""


@pytest.mark.parametrize("served", [False, True], ids=["without slots", "with all slots"])
@pytest.mark.parametrize("silent", [False, True], ids=["which says so", "behind a proxy"])
def test_a_cluster_is_refused_by_name(
    settings: Settings, cluster: Valkey, monkeypatch: pytest.MonkeyPatch, served: bool, silent: bool
) -> None:
    with Redis.from_url(cluster.url) as client:
        client.execute_command("CLUSTER", "FLUSHSLOTS")
        if served:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    if silent:
        monkeypatch.setattr(redis_server, "_hello", lambda _: {})
    clustered = settings.model_copy(update={"redis_url": SecretStr(cluster.url)})
    says, fix = wrong(clustered)
    assert "is in cluster mode" in says
    assert "cluster mode disabled" in fix
    with pytest.raises(BrokerRefusedError, match="is in cluster mode"):
        refuse_unusable_redis(clustered)


def test_no_process_starts_beside_a_cluster(settings: Settings, cluster: Valkey) -> None:
    clustered = settings.model_copy(update={"redis_url": SecretStr(cluster.url), "engine_url": "unix:///nowhere/e"})
    commands = [[*THOTHY, name] for name in ("dispatcher", "reaper", "worker")]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, env=environment(clustered), **pipes) for command in commands]
    for process in started:
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert "is in cluster mode" in said.splitlines()[-1]
        assert "Traceback" not in said


def test_a_broker_follows_a_failover(settings: Settings, tmp_path: Path) -> None:
    """Its connections to the former primary, which is a replica now, stay open."""
    with (
        Valkey(tmp_path / "a", durable=False) as first,
        Valkey(tmp_path / "b", durable=False) as second,
        forwarder(tmp_path, first.port) as name,
        Redis.from_url(first.url) as old,
        Redis.from_url(second.url) as new,
    ):
        new.config_set("requirepass", first.password)
        hint = Hint(uuid4(), 1)
        url = f"redis://:{first.password}@127.0.0.1:{name.port}/0"
        following = settings.model_copy(update={"redis_url": SecretStr(url)})
        broker = Broker(following)
        try:
            broker.publish([hint], engine="first")
            old.execute_command("REPLICAOF", "127.0.0.1", second.port)
            with pytest.raises(BrokerUnreachableError, match="is a replica, which takes no writes"):
                broker.publish([hint], engine="first")
            assert "is a replica" in wrong(following)[0]
            name.point_to(second.port)
            with suppress(BrokerUnreachableError):  # the connection that publishes is another one
                broker.publish([hint], engine="first")
            broker.delete(["first"])
            broker.publish([hint], engine="first")
            assert broker.depth("first").ordinary == 1
        finally:
            broker.close()
