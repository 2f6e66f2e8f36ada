"""Adapters through a whole stack: at start and at run time, in jobs, aliases, OpenAI's API and the bill."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from openai import NotFoundError, OpenAI
from sqlalchemy import Engine, text
from typer.testing import Result

from tests.support.command_line import one_line, typed
from tests.support.engine_rows import REGISTER
from tests.support.null_stack import NullStack
from tests.support.patience import PATIENCE
from tests.support.peft_folders import small_adapter
from tests.support.queue_bench import eventually
from tests.support.server_folder import server_folder
from thothy_ai.admin.engines import engines
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded.process import reserved_ports
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.jobs.kinds.chat import Chat
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import PREFIX, Settings

MESSAGES = [{"role": "user", "content": "Say hello."}]


@dataclass
class Stack:
    settings: Settings
    record: Engine
    producer: Producer
    client: OpenAI

    def thothy(self, *arguments: object, exit_code: int = 0) -> Result:
        return typed(self.settings, *arguments, exit_code=exit_code)

    def rows(self, query: str, **values: object) -> list[Any]:
        with self.record.connect() as connection:
            return list(connection.execute(text(query), values))

    def answered(self, model: str) -> str:
        """By which model a job says that it was answered."""
        job = self.producer.enqueue(Chat(messages=MESSAGES), model=model)
        return str(job.result(timeout=PATIENCE).model)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all tests here: it takes as long to start as all of them."""
    with (
        server_folder() as home,
        reserved_ports(range(18000, 18100, 2), 2) as port,
        patch.dict(
            os.environ, {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}, clear=True
        ),
    ):
        settings = Settings.load(home=home, http_port=port, engine_name="box", model_name="base")
        adapters = {"acme": small_adapter(tmp_path_factory.mktemp("adapters") / "acme")}
        with NullStack(settings, services=(*SERVICES, DOOR), adapters=adapters) as stack:
            record = make_engine(stack.settings)
            client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0)
            with Producer(stack.settings) as producer, client:
                yield Stack(stack.settings, record, producer, client)
            record.dispose()


def test_adapters_from_the_start_to_the_bill(stack: Stack, tmp_path: Path) -> None:
    # One that was loaded at start answers jobs, and requests over HTTP.
    assert stack.answered("acme") == "acme"
    assert stack.answered("base") == "base"
    eventually(lambda: {model.id for model in stack.client.models.list()} == {"acme", "base"})
    assert stack.client.models.retrieve("acme").model_extra == {"parent": "base"}
    assert stack.client.models.retrieve("base").model_extra == {}
    [shown] = json.loads(stack.thothy("adapters", "list", "--json").stdout)
    assert (shown["name"], shown["model"], shown["rank"], shown["engines"]) == ("acme", "base", 4, ["box"])
    answer = stack.client.chat.completions.create(model="acme", messages=MESSAGES)
    assert answer.model == "acme"

    # A job for one that no engine has waits, is named, and runs once it is loaded, also by an alias.
    early = stack.producer.enqueue(Chat(messages=MESSAGES), model="nova")
    assert "1 job waits for nova, which no engine serves." in stack.thothy("queue", "status").stdout
    with pytest.raises(NotFoundError, match="'nova' does not exist; there are acme, base"):
        stack.client.chat.completions.create(model="nova", messages=MESSAGES)
    nova = small_adapter(tmp_path / "nova", seed=1)
    assert stack.thothy("adapters", "load", f"nova={nova}").stdout.startswith("box has nova (rank 4, ")
    assert stack.client.models.retrieve("nova").model_extra == {"parent": "base"}  # at once
    assert stack.client.chat.completions.create(model="nova", messages=MESSAGES).model == "nova"
    assert early.result(timeout=PATIENCE).model == "nova"
    assert stack.thothy("models", "alias", "house", "nova").stdout == "house now stands for nova.\n"
    assert stack.answered("house") == "nova"
    assert stack.client.models.retrieve("house").model_extra == {"parent": "base"}
    assert stack.client.chat.completions.create(model="house", messages=MESSAGES).model == "house"

    # So does a batch.
    body = {"model": "acme", "messages": MESSAGES}
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    file = stack.client.files.create(file=("b.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = stack.client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    eventually(lambda: stack.client.batches.retrieve(batch.id).status == "completed")
    output = stack.client.files.content(stack.client.batches.retrieve(batch.id).output_file_id or "").text
    assert json.loads(output)["response"]["body"]["model"] == "acme"

    # Other weights under the same name have another digest, which artifacts record.
    first, second = _digest(stack, "acme"), small_adapter(tmp_path / "acme2", seed=2)
    stack.thothy("adapters", "load", f"acme={second}")
    assert _digest(stack, "acme") != first
    stack.answered("acme")
    made = stack.rows("SELECT provenance FROM artifact JOIN job ON id = job_id WHERE model = 'acme' ORDER BY id")
    assert [row.provenance["adapter"]["digest"] for row in made] == [first, first, _digest(stack, "acme")]

    # One that is unloaded keeps its queued jobs until it is loaded again.
    assert stack.thothy("adapters", "unload", "nova").stdout == "box no longer has nova.\n"
    with pytest.raises(NotFoundError):
        stack.client.chat.completions.create(model="house", messages=MESSAGES)
    waiting = stack.producer.enqueue(Chat(messages=MESSAGES), model="house")
    assert "1 job waits for house, an alias of nova, which no engine serves." in stack.thothy("queue", "status").stdout
    assert stack.thothy("adapters", "unload", "nova", exit_code=1).stderr.startswith(
        "thothy: no engine of this machine"
    )
    stack.thothy("adapters", "load", f"nova={nova}")
    assert waiting.result(timeout=PATIENCE).model == "nova"

    # The bill has them under their own names, with the seconds of requests over HTTP.
    eventually(lambda: stack.rows("SELECT sum(requests) AS n FROM interactive_usage")[0].n == 3)
    assert {row.adapter for row in stack.rows("SELECT adapter FROM interactive_usage")} == {"acme", "nova"}
    lines = drain_report(stack.record, datetime.now(UTC) - timedelta(hours=1)).bill.by("model")
    assert {name: (line.usage.accepted, line.usage.requests) for name, line in lines.items()} == {
        "acme": (3, 1), "base": (1, 0), "nova": (3, 2),
    }  # fmt: skip


def test_what_cannot_be_loaded_is_one_sentence(stack: Stack, tmp_path: Path) -> None:
    good = small_adapter(tmp_path / "good")
    stack.thothy("models", "alias", "taken", "acme")
    for name, folder, says in (
        ("nova", tmp_path / "missing", "no folder at"),
        ("two words", good, "cannot be an adapter's name"),
        ("taken", good, "taken is an alias of acme"),
        ("base", good, "base is the model of engine box"),
    ):
        assert says in one_line(stack.thothy("adapters", "load", f"{name}={folder}", exit_code=2))
    stack.thothy("models", "unalias", "taken")
    before = stack.thothy("adapters", "list").stdout
    dora = small_adapter(tmp_path / "dora", use_dora=True)
    refused = one_line(stack.thothy("adapters", "load", f"dora={dora}", exit_code=1))
    assert refused.startswith("dora on box: ")
    assert "use_dora (True) is not implemented" in refused
    assert stack.thothy("adapters", "list").stdout == before
    assert stack.producer.enqueue(Chat(messages=MESSAGES), model="acme").result(timeout=PATIENCE).model == "acme"


def test_what_has_not_got_an_adapter_is_named(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = small_adapter(tmp_path / "good")
    [here] = [engine for engine in engines(stack.record) if engine.name == "box"]
    session = uuid4()
    with stack.record.begin() as connection:
        given = {"id": session, "name": "late", "model": "base", "adapters": "{}", "capacity": 1, "state": "loading"}
        connection.execute(text(REGISTER), given | {"age": 1, "silent": -3600, "worker_silent": None})
        connection.execute(
            text("UPDATE engine_session SET machine = :m WHERE id = :id"), {"m": here.machine, "id": session}
        )
    loaded = stack.thothy("adapters", "load", f"slow={good}", exit_code=1)
    assert loaded.stdout.startswith("box has slow (rank 4, ")
    assert "late does not have slow: it was still loading its model." in one_line(loaded)
    with stack.record.begin() as connection:
        given = {"has": '{"slow": {}}', "id": session}
        connection.execute(text("UPDATE engine_session SET adapters = CAST(:has AS jsonb) WHERE id = :id"), given)
    unloaded = stack.thothy("adapters", "unload", "slow", exit_code=1)
    assert unloaded.stdout == "box no longer has slow.\n"
    assert "late will have slow: it was still loading its model." in one_line(unloaded)
    with stack.record.begin() as connection:
        connection.execute(text("DELETE FROM engine_session WHERE id = :id"), {"id": session})
    monkeypatch.setattr("thothy_ai.admin.adapters.REGISTER_SECONDS", 0.0)
    unheard = stack.thothy("adapters", "load", f"slow={good}", exit_code=1)
    assert unheard.stdout.startswith("box has slow (rank 4, ")
    assert "slow on box: Postgres has not heard of it yet" in one_line(unheard)
    eventually(lambda: "slow" in stack.thothy("adapters", "list").stdout)
    unheard = stack.thothy("adapters", "unload", "slow", exit_code=1)
    assert unheard.stdout.startswith("box no longer has slow.")
    assert "slow on box: Postgres has not heard of it yet" in one_line(unheard)


def test_a_hundred_adapters(stack: Stack, tmp_path: Path) -> None:
    good = small_adapter(tmp_path / "good")
    names = [f"voice-{number:02}" for number in range(100)]
    requests = [(Chat(messages=MESSAGES), EnqueueOptions(model=name)) for name in names]
    jobs = stack.producer.enqueue_many(requests)
    stack.thothy("adapters", "load", *(f"{name}={good}" for name in names))
    assert [job.result(timeout=PATIENCE).model for job in jobs] == names
    assert set(names) < {each["name"] for each in json.loads(stack.thothy("adapters", "list", "--json").stdout)}


def _digest(stack: Stack, name: str) -> str:
    [found] = [each for each in json.loads(stack.thothy("adapters", "list", "--json").stdout) if each["name"] == name]
    return str(found["digest"])
