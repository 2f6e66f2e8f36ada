"""An engine's row in `engine_session`: written by its own side, from the start of its process to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text

from tests.support.fake_engine import FakeClient
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from tests.support.registered_engine import engine_process
from thothy_ai.admin.processes import connected
from thothy_ai.db.statements import statement
from thothy_ai.engine.api import AdapterInfo, AdapterStats, EngineStats, GenerationRequest
from thothy_ai.engine.serving.client import connect
from thothy_ai.settings import Settings
from thothy_ai.worker.loop import WorkerLoop
from thothy_ai.worker.registration.messages import EngineEnded, Ready, Registration
from thothy_ai.worker.registration.registrar import Registrar

HOST = socket.gethostname()
ONE = "SELECT *, started_at < ready_at AS loaded FROM engine_session WHERE state = '{}'"
Rows = Callable[..., Any]


@pytest.fixture
def rows(engine: Engine) -> Rows:
    def rows(statement: str, **values: object) -> list[Any]:
        with engine.begin() as connection:
            done = connection.execute(text(statement), values)
            return list(done.all()) if done.returns_rows else []

    return rows


def in_state(rows: Rows, state: str) -> Any:
    """The only session in this state, once there is one."""
    eventually(lambda: bool(rows(ONE.format(state))))
    [row] = rows(ONE.format(state))
    return row


def ask(url: str, *requests: GenerationRequest) -> None:
    async def body() -> None:
        client = connect(url)
        await client.start()
        for request in requests:
            await (await client.submit(request)).result()
        await client.close()

    asyncio.run(body())


def test_a_session_without_any_worker(settings: Settings, rows: Rows) -> None:
    with engine_process(settings, "--max-rows", "7", model_name="tiny") as process:
        ready = in_state(rows, "ready")
        assert (ready.engine_name, ready.machine, ready.address) == (f"{HOST}-0", HOST, process.url)
        assert (ready.model_name, ready.model, ready.capacity) == ("tiny", "null", 7)
        assert (ready.devices, ready.gpus, ready.loaded, ready.ended_at) == ([], 0, True, None)
        assert (ready.running_sequences, ready.waiting_sequences, ready.kv_used) == (0, 0, None)
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE heartbeat_at > ready_at + interval '3 seconds'"))
        assert process.stop() == 0
        ended = in_state(rows, "ended")
        assert (ended.id, ended.end_reason, ended.running_sequences) == (ready.id, "stopped", None)
        assert ended.started_at <= ready.started_at  # the least of what was ever found: a report can only be late
        assert ended.ended_at >= ended.heartbeat_at
        eventually(lambda: not process.registrars())


def test_the_last_counters_are_those_of_the_end(settings: Settings, rows: Rows) -> None:
    with engine_process(settings, "--null-latency", "0.01") as process:
        in_state(rows, "ready")
        ask(process.url, *(GenerationRequest(str(number), text="x", booked=number > 1) for number in range(5)))
        process.stop()
    ended = in_state(rows, "ended")
    assert (ended.busy_seconds, ended.direct_seconds) == (pytest.approx(0.05), pytest.approx(0.02))


def test_adapters_that_come_and_go_and_change_are_recorded(
    queue: Queue, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job for one waits meanwhile."""
    monkeypatch.setattr("thothy_ai.worker.registration.registrar.HEARTBEAT_SECONDS", 0.05)

    class Client(FakeClient):
        changes = 0

        async def stats(self) -> EngineStats:
            return replace(await super().stats(), adapters=AdapterStats(changes=self.changes))

        async def adapters(self) -> list[AdapterInfo]:
            return [AdapterInfo(name, digest, 4) for name, digest in self.loaded.items()]

    client = Client()
    registration = Registration(client.session_id, "a", HOST, "base", "cpu", (), 8, time.monotonic(), ("acme",))
    registrar = Registrar(queue.settings, registration, client)  # type: ignore[arg-type]

    def recorded() -> dict[str, Any]:
        found = rows("SELECT adapters FROM engine_session")
        return {name: has.get("digest") for name, has in found[0].adapters.items()} if found else {}

    recording = threading.Thread(target=lambda: asyncio.run(registrar.run()))
    recording.start()
    try:
        eventually(lambda: recorded() == {"acme": None})  # it loads, and is going to have it
        registrar.hear(Ready("unix:///nowhere", time.monotonic()))
        in_state(rows, "ready")
        rows("UPDATE engine_session SET worker_heartbeat_at = now() + interval '1 hour'")
        [waiting] = queue.enqueue("ok", model="acme")
        for loaded in ({"nova": "1"}, {}, {"acme": "1"}, {"acme": "2"}):
            client.loaded, client.changes = loaded, client.changes + 1
            eventually(lambda loaded=loaded: recorded() == loaded)  # type: ignore[misc]
            assert [hint.job_id for hint in queue.dispatch()] == ([waiting] if loaded == {"acme": "1"} else [])
    finally:
        registrar.hear(EngineEnded("stopped"))
        recording.join()
    assert [row.state for row in rows("SELECT state FROM engine_session")] == ["ended"]


def test_a_killed_engine_ended_when_it_was_killed(settings: Settings, rows: Rows) -> None:
    with engine_process(settings) as process:
        in_state(rows, "ready")
        process.kill()
        ended = in_state(rows, "ended")
        assert (ended.end_reason, ended.settled_at) == ("killed", None)
        assert ended.heartbeat_at < ended.ended_at  # as old as the counters: what is billed after them is no error
        eventually(lambda: not process.registrars())


def test_an_engine_that_cannot_start_has_ended(settings: Settings, rows: Rows) -> None:
    """Its address is a folder."""
    (settings.home / "e0.sock").mkdir(parents=True)
    with engine_process(settings) as process:
        assert process.popen.wait(PATIENCE) == 2
    ended = in_state(rows, "ended")
    assert (ended.end_reason, ended.ready_at) == ("failed", None)


def test_a_model_that_is_not_there_leaves_no_session(settings: Settings, rows: Rows) -> None:
    model, url = settings.home / "nothing", f"unix://{settings.home}/e0.sock"
    done = subprocess.run(
        [sys.executable, "-m", "thothy_ai.cli", "engine", "--model", model, "--url", url],
        env=os.environ | settings.environment(), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, f"thothy: {model}: no such file or folder\n")
    assert rows("SELECT id FROM engine_session") == []


def test_a_killed_registrar_is_replaced(settings: Settings, rows: Rows) -> None:
    with engine_process(settings) as process:
        before = in_state(rows, "ready")
        gone = process.kill_registrar()
        rows("UPDATE engine_session SET heartbeat_at = started_at")
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE heartbeat_at > ready_at"))
        assert in_state(rows, "ready").id == before.id
        assert gone not in process.registrars()


def test_signals_for_the_engine_do_not_end_its_registrar(settings: Settings, rows: Rows) -> None:
    with engine_process(settings) as process:
        in_state(rows, "ready")
        [pid] = process.registrars()
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        process.stop()
        assert in_state(rows, "ended").end_reason == "stopped"


def test_a_second_live_engine_of_a_name_is_refused(settings: Settings, rows: Rows) -> None:
    with engine_process(settings, engine_name="box") as first, engine_process(settings, number=1, engine_name="other"):
        eventually(lambda: len(rows(ONE.format("ready"))) == 2)
        with engine_process(settings, number=2, engine_name="box") as second:
            assert second.popen.wait(PATIENCE) == 2
            said = second.popen.stderr.read() if second.popen.stderr else ""
        assert f"an engine named box already runs on {HOST} at {first.url}: set THOTHY_ENGINE_NAME" in said
        assert rows("SELECT count(*) FROM engine_session") == [(2,)]
        first.stop()
        in_state(rows, "ended")  # whose name is free then
        with engine_process(settings, number=2, engine_name="box"):
            eventually(lambda: len(rows(ONE.format("ready"))) == 2)


def test_a_silent_engine_s_name_is_free(settings: Settings, rows: Rows) -> None:
    """As after the loss of a machine, before the reaper has noticed."""
    rows(
        "INSERT INTO engine_session (id, model, device, dtype, gpus, num_blocks, block_size, started_at, heartbeat_at,"
        " engine_name) VALUES (:id, 'm', 'd', '', 0, 0, 0, now(), now() - interval '11 seconds', 'box')",
        id=uuid4(),
    )
    with engine_process(settings, engine_name="box"):
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE ready_at IS NOT NULL AND engine_name = 'box'"))


def test_a_session_that_was_taken_for_dead_is_open_again(queue: Queue, rows: Rows) -> None:
    with engine_process(queue.settings):
        in_state(rows, "ready")
        with queue.engine.begin() as connection:  # a heartbeat would open it again
            connection.execute(statement("queue/end_sessions"), {"silence_seconds": -1})
            found = connection.execute(text("SELECT state, end_reason FROM engine_session")).all()
        assert found == [("ended", "silent")]
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE state = 'ready' AND ended_at IS NULL"))
        assert in_state(rows, "ready").end_reason is None


def test_without_postgres_the_engine_serves_as_ever(settings: Settings) -> None:
    away = settings.model_copy(update={"database_url": SecretStr("postgresql+psycopg://u:p@127.0.0.1:9/db")})
    with engine_process(away) as process:
        line = process.popen.stdout.readline() if process.popen.stdout else ""
        assert "ready at" in line
        ask(process.url, GenerationRequest("1", text="x"))
        assert process.stop() == 0
        eventually(lambda: not process.registrars())


def test_a_locked_table_delays_only_the_record(settings: Settings, rows: Rows, engine: Engine) -> None:
    with engine_process(settings, "--null-latency", "0.01") as process:
        in_state(rows, "ready")
        with engine.begin() as connection:
            connection.execute(text("LOCK TABLE engine_session"))
            ask(process.url, GenerationRequest("1", text="x"))
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE busy_seconds > 0"))


def test_an_idle_worker_beside_a_registered_engine_is_seen(queue: Queue, rows: Rows) -> None:
    """By its connection to Postgres, as `thothy doctor` looks for it; the row stays the registrar's."""
    with engine_process(queue.settings) as process:
        ready = in_state(rows, "ready")
        runner = WorkerLoop(queue.settings, "idle", lambda _: connect(process.url), lambda _: None, lambda: None)
        runner.start()
        eventually(lambda: "worker" in connected(queue.engine))
        eventually(lambda: rows("SELECT 1 FROM engine_session WHERE heartbeat_at > :at", at=ready.heartbeat_at))
        runner.shut_down(0)
        assert runner.join(PATIENCE)
        assert rows("SELECT id, engine_name FROM engine_session") == [(ready.id, f"{HOST}-0")]
