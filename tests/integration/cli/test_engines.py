"""`thothy engines`, and what doctor and top make of several engines."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis import Redis
from redis.client import PubSub
from sqlalchemy import Engine, insert

from tests.support.command_line import Run, add_attempt, enqueue, set_job
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from thothy_ai.admin.doctor import Diagnosis, Level, examine
from thothy_ai.db.models import EngineSessionRow
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.queue.live import interest_channel, presence_channel
from thothy_ai.queue.pauses import pause_part
from thothy_ai.settings import Settings

HOUR = 3600.0


def add(engine: Engine, name: str, *, silent: float = -HOUR, age: float = 100, **values: Any) -> UUID:
    """An engine that started `age` seconds ago and was last heard of `silent` seconds ago, by default in an hour."""
    session, now = uuid4(), datetime.now(UTC)
    row = {
        "id": session, "engine_name": name, "machine": "box", "model": "Tiny", "model_name": "tiny", "device": "cuda:0",
        "devices": ["GPU-1"], "gpus": 1, "dtype": "bfloat16", "num_blocks": 1, "block_size": 16, "capacity": 768,
        "address": f"unix:///run/{name}.sock", "started_at": now - timedelta(seconds=age), "state": "ready",
        "ready_at": now - timedelta(seconds=age), "heartbeat_at": now - timedelta(seconds=silent),
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(EngineSessionRow), row | values)
    return session


def listed(run: Run, *options: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(run("engines", "--json", *options).stdout)}


def test_no_engine(run: Run) -> None:
    assert run("engines").stdout == "No engine runs. `thothy up` and `thothy engine` start one.\n"
    assert listed(run) == {}


def test_engines_of_all_machines(run: Run, engine: Engine) -> None:
    session = add(engine, "a-0")
    add(engine, "b-0", machine="far", state="loading", ready_at=None, devices=[], device="cpu", gpus=0)
    add(engine, "c-0", silent=30)
    add(engine, "d-0", ended_at=datetime.now(UTC), state="ended", end_reason="killed")
    job = enqueue(run)
    now = datetime.now(UTC)
    running = {"state": "running", "worker": "w", "lease_until": now, "started_at": now}
    set_job(engine, job, engine_session_id=session, **running)
    add_attempt(engine, job, 1, engine_session_id=session, output_tokens=1200)
    found = listed(run)
    assert {name: each["state"] for name, each in found.items()} == {"a-0": "ready", "b-0": "loading", "c-0": "silent"}
    assert (found["a-0"]["running"], found["a-0"]["tokens_per_second"]) == (1, 20)
    assert (found["b-0"]["running"], found["b-0"]["tokens_per_second"]) == (0, 0)
    assert found["a-0"]["devices"] == ["GPU-1"]
    assert 29 < found["c-0"]["heartbeat_age"] < 300
    assert (listed(run, "--all")["d-0"]["state"], listed(run, "--all")["d-0"]["end_reason"]) == ("ended", "killed")
    text = run("engines", "--all").stdout
    assert "ended (killed)" in text
    assert str(session) in text
    assert "GPU-1" in text
    pause_part(engine, "engine", "a-0", by="me")
    assert {name: each["paused"] for name, each in listed(run).items()} == {"a-0": True, "b-0": False, "c-0": False}
    assert "ready (paused)" in run("engines").stdout


def findings(settings: Settings) -> list[tuple[Level, str]]:
    found: list[Diagnosis] = examine(lambda: settings, ("engines",))
    return [(each.level, each.says) for each in found]


def subscribe(inbox: PubSub, *channels: str) -> None:
    """As a worker does, until Redis has confirmed it."""
    inbox.subscribe(*channels)
    for _ in channels:
        eventually(lambda: inbox.get_message(timeout=1))


def test_doctor_without_engines(settings: Settings) -> None:
    assert findings(settings) == [(Level.WARNING, "no engine has registered itself")]


def test_doctor_names_what_is_wrong_with_engines(settings: Settings, engine: Engine) -> None:
    add(engine, "a-0")
    add(engine, "a-0", machine="far")
    add(engine, "b-0", silent=3000)
    add(engine, "c-0")
    add(engine, "new", age=-HOUR)  # its worker may still be looking for it
    with Redis.from_url(settings.require_redis_url()) as redis:
        inbox = redis.pubsub()
        other = redis.pubsub()
        subscribe(inbox, *(presence_channel(settings, name) for name in ("a-0", "c-0")), interest_channel(settings))
        subscribe(other, presence_channel(settings, "a-0"), interest_channel(settings))
        (_, *wrong) = findings(settings)
        silent, namesakes = (says for _, says in wrong)
        assert silent.startswith("engine b-0 on box has been silent for 3,0")
        assert namesakes == "2 engines are named a-0: unix:///run/a-0.sock on box and unix:///run/a-0.sock on far"
        inbox.close()
        other.close()
    add(engine, "d-0")
    alone = [says for _, says in findings(settings) if says.startswith("no worker")]
    assert "no worker serves engine d-0 on box" in alone
    assert "no worker serves engine new on box" not in alone


def test_doctor_finds_a_worker_without_an_engine(settings: Settings, engine: Engine) -> None:
    with Redis.from_url(settings.require_redis_url()) as redis, redis.pubsub() as first, redis.pubsub() as second:
        subscribe(first, interest_channel(settings), presence_channel(settings, "a-0"))
        subscribe(second, interest_channel(settings))
        add(engine, "a-0")
        assert findings(settings)[1:] == [(Level.WARNING, "1 worker has no engine here")]
        add(engine, "new", age=-HOUR)  # its worker may still be looking for it
        assert findings(settings)[1:] == []
        second.close()
        add(engine, "loads", state="loading")
        assert findings(settings)[1:] == []


def test_top_shows_this_machine_s_engines_together(
    run: Run, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = NullEngine(), NullEngine()
    urls = [f"unix://{tmp_path}/{number}.sock" for number in range(2)]
    add(engine, "far", machine="far")
    add(engine, "gone", machine=socket.gethostname())  # it does not answer: the others are shown
    for number, url in enumerate(urls):
        add(engine, f"here-{number}", machine=socket.gethostname(), address=url)
    monkeypatch.setenv("THOTHY_ENGINE_URL", urls[0])
    monkeypatch.setattr("thothy_ai.cli.commands.top.FIRST_SECONDS", PATIENCE)
    with served(first, urls[0]), served(second, urls[1]):
        assert json.loads(run("top", "--json").stdout)["engine"]["engines"] == 2
        assert "2 engines" in run("top", "--once").stdout
    for backend in (first, second):
        backend.stop()
