"""The embedded servers: they start, keep their data, stop, and never outlive the process that started them."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from tests.support.patience import PATIENCE
from thothy_ai.cli.shell import door_address
from thothy_ai.db.schema import check_schema
from thothy_ai.embedded import EmbeddedStack, Postgres, Valkey, cluster
from thothy_ai.embedded.home import locked
from thothy_ai.embedded.process import accepts
from thothy_ai.errors import ConfigError, StackRunningError
from thothy_ai.jobs import Hook
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")


def runs(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_valkey_wants_its_password_and_keeps_its_data(home: Path) -> None:
    valkey = Valkey(home)
    with valkey, Redis.from_url(valkey.url) as client:
        assert client.set("kept", "yes")
        with Redis(port=valkey.port) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
    assert not accepts("127.0.0.1", valkey.port)
    with valkey, Redis.from_url(valkey.url, decode_responses=True) as client:
        assert client.get("kept") == "yes"


def test_secrets_are_for_the_owner_only_and_on_no_command_line(home: Path) -> None:
    with Valkey(home / "valkey") as valkey, Postgres(home / "postgres", durable=False) as postgres:
        for file in (home / "valkey" / "valkey.conf", home / "postgres" / "password"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for server, secret in ((valkey, valkey.password), (postgres, (home / "postgres" / "password").read_text())):
            command = Path(f"/proc/{server.process.pid}/cmdline").read_text()
            assert secret not in command
            assert secret not in repr(server.process.program)


def test_postgres_wants_its_password_and_keeps_its_data(home: Path) -> None:
    postgres = Postgres(home)
    with postgres:
        postgres.execute("CREATE TABLE kept AS SELECT 'ja' AS answer", database="thothy")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(host="127.0.0.1", port=postgres.port, user="thothy", dbname="thothy", password="x")
    assert not accepts("127.0.0.1", postgres.port)
    with postgres, psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == ("ja",)
        assert connection.execute("SELECT datlocale, pg_encoding_to_char(encoding) FROM pg_database").fetchone() == (
            "C.UTF-8",
            "UTF8",
        )


def test_postgres_comes_back_over_the_lock_of_a_server_that_was_killed(home: Path) -> None:
    postgres = Postgres(home)
    postgres.start()
    postgres.process.kill()
    [lock] = home.rglob("postmaster.pid")
    lock.write_text(lock.read_text().replace(str(postgres.process.pid), "1", 1))  # the id of something that lives
    with postgres:
        assert postgres.answers()


def test_postgres_waits_for_the_children_of_a_server_that_was_killed(home: Path) -> None:
    first, log = Postgres(home), home / "postgres.log"
    first.start()
    connection = psycopg.connect(first.url.replace("+psycopg", ""))
    child = connection.info.backend_pid
    os.kill(child, signal.SIGSTOP)  # it cannot notice the end of its server
    first.process.kill()
    connection.close()

    def go_on() -> None:
        eventually(lambda: "pre-existing shared memory block" in log.read_text())
        os.kill(child, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    with Postgres(home) as second:
        assert second.answers()
    thread.join()
    assert "pre-existing shared memory block" in log.read_text()


def test_run_by_root_all_that_postgres_touches_is_where_nobody_can_reach_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SHARED", home / "shared")
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    with Postgres(closed / "postgres", durable=False) as postgres:
        assert postgres.answers()
    [data] = [control.parent.parent for control in home.rglob("global/pg_control")]
    assert data.parent == (home / "shared" if os.geteuid() == 0 else closed / "postgres")


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_home_that_was_deleted_and_made_again_is_empty(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """Even if other accounts cannot reach it, and its data lies elsewhere."""
    monkeypatch.setattr(cluster, "SHARED", home / "shared")
    made = home / "made"
    for _ in range(2):
        made.mkdir(mode=mode)
        for tables in (0, 1):  # and is as it was, if it was not deleted
            with Postgres(made / "postgres", durable=False) as postgres:
                url = postgres.url.replace("+psycopg", "")
                with psycopg.connect(url) as connection:
                    found = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'kept'").fetchone()
                    assert found == (tables,)
                    connection.execute("CREATE TABLE IF NOT EXISTS kept ()")
        shutil.rmtree(made)


def test_run_by_root_postgres_has_an_account_of_its_own_or_says_that_it_has_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners, warnings = [], []
    for name in ("no-such-account", "daemon", "no-such-account"):
        monkeypatch.setattr(cluster, "ACCOUNT", name)
        with Postgres(home / "postgres", durable=False) as postgres:
            owners.append({path.lstat().st_uid for path in (home / "postgres" / "data").rglob("*")})
            warnings.append(postgres.warning)
            assert owners[-1] == {Path(f"/proc/{postgres.process.pid}").stat().st_uid}
    if os.geteuid() == 0:
        accounts = ("nobody", "daemon", "nobody")
        assert owners == [{pwd.getpwnam(account).pw_uid} for account in accounts]
        assert warnings == [cluster.SHARES_ACCOUNT, None, cluster.SHARES_ACCOUNT]
        assert "`useradd --system" in cluster.SHARES_ACCOUNT
    else:
        assert (owners, warnings) == ([{os.geteuid()}] * 3, [None] * 3)


def test_binaries_out_of_reach_are_copied_once_and_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SHARED", home / "shared")
    monkeypatch.setattr(cluster, "_reachable", lambda path: home in path.parents)
    for _ in range(2):
        with Postgres(home / "postgres", durable=False) as postgres:
            binary = Path(postgres.process.program.argv[0])
            assert (home in binary.parents) == (os.geteuid() == 0)
    assert len(list(home.glob("shared/*"))) == (1 if os.geteuid() == 0 else 0)


def test_a_stack_without_services_is_migrated_and_announced(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home / "h", http_host="::1", http_port=8765), services=()) as stack:
        file = home / "h" / "stack.env"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = Settings.load(home=home / "h")
        assert found.require_database_url() == stack.settings.require_database_url()
        assert found.require_redis_url() == stack.settings.require_redis_url()
        assert door_address(found) == "http://[::1]:8765"  # which `thothy console` prints
        check_schema(found)
        ports = (stack.postgres.port, stack.valkey.port)
    assert not file.exists()
    assert not any(accepts("127.0.0.1", port) for port in ports)


@pytest.mark.parametrize("before", [None, 0o644], ids=["new", "of an earlier start"])
def test_no_other_account_can_hold_the_lock_of_a_home(home: Path, before: int | None) -> None:
    lock = home / "stack.lock"
    if before is not None:
        lock.touch()
        lock.chmod(before)
    with locked(home):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_lock_that_leads_elsewhere_is_not_followed(home: Path) -> None:
    (home / "stack.lock").symlink_to(home / "elsewhere")
    with pytest.raises(OSError, match=r"stack\.lock"), locked(home):
        pass
    assert not (home / "elsewhere").exists()


def test_a_second_stack_in_the_same_home_is_refused(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=()) as stack:
        with pytest.raises(StackRunningError, match="already runs"), EmbeddedStack(stack.settings, services=()):
            pass
        assert Settings.load(home=home).database_url  # the first is untouched
        assert stack.postgres.process.alive


def test_an_engine_needs_a_model(home: Path) -> None:
    with pytest.raises(ConfigError, match="THOTHY_MODEL"), EmbeddedStack(Settings.load(home=home)):
        pass


def test_servers_that_die_are_started_again_with_their_data(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=()) as stack, Producer(stack.settings) as producer:
        job = producer.enqueue(Hook(source="Crocks sold out in March."))
        before = stack.postgres.process.pid
        stack.postgres.process.kill()
        assert eventually(lambda: stack.postgres.process.pid != before and stack.postgres.answers())
        assert producer.job(job.id).kind == "hook"
        assert not stack.wait(0)


def test_services_start_with_the_stack_come_back_when_killed_and_end_with_it(home: Path) -> None:
    with EmbeddedStack(Settings.load(home=home), services=("reaper", "dispatcher")) as stack:
        assert {"thothy-reaper", "thothy-dispatcher"} <= stack.postgres.sessions()
        before = stack.pids()["dispatcher"]
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert eventually(lambda: stack.pids()["dispatcher"] not in {None, before})
        assert eventually(lambda: "thothy-dispatcher" in stack.postgres.sessions())
        pids = [pid for pid in stack.pids().values() if pid is not None]
        assert len(pids) == 4
    assert not any(runs(pid) for pid in pids)
    assert {file.name for file in home.glob("logs/*")} >= {"dispatcher.log", "reaper.log"}


PARENT = """
import json, sys, threading
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.cli.shell import door_address
from thothy_ai.settings import Settings
stack = EmbeddedStack(Settings.load(home=sys.argv[1]), services=())
thread = threading.Thread(target=stack.start)  # ends before we do: what it started must not
thread.start()
thread.join()
print(json.dumps([[s.process.pid, s.port] for s in (stack.postgres, stack.valkey)]), flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_leaves_no_server_and_its_home_is_usable(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        servers = json.loads(parent.stdout.readline())
        assert all(runs(pid) and accepts("127.0.0.1", port) for pid, port in servers)
        parent.send_signal(signal.SIGKILL)
    for pid, port in servers:
        assert eventually(lambda pid=pid: not runs(pid))
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert (home / "stack.env").exists()  # no process was left to remove it
    with EmbeddedStack(Settings.load(home=home), services=()) as stack:
        check_schema(stack.settings)
    assert not (home / "stack.env").exists()
