"""Adapters that come and go between two looks at the engines' records."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.answering_backend import Answer, AnsweringBackend
from tests.support.door import served_door
from tests.support.openai_requests import HELLO, chat, post
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from thothy_ai.engine.api import AdapterInfo, EngineInfo, GenerationRequest
from thothy_ai.engine.api.errors import UnknownAdapterError
from thothy_ai.http import engines
from thothy_ai.http.engines import Known
from thothy_ai.settings import Settings


class Adapted(AnsweringBackend):
    """An engine whose adapters a test changes."""

    def __init__(self, session: str, *names: str) -> None:
        super().__init__(self._answered)
        self.session, self.names = session, set(names)

    def _answered(self, request: GenerationRequest) -> Answer:
        if request.adapter and request.adapter not in self.names:
            return UnknownAdapterError(f"adapter: {request.adapter} is not loaded", "adapter")
        return [self.session]

    def info(self) -> EngineInfo:
        return replace(super().info(), session_id=self.session, model_name="base")

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return tuple(AdapterInfo(name, "", 4) for name in sorted(self.names))


class Records:
    """A directory of what was recorded, which a test changes."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}

    async def look(self) -> Collection[Known]:
        return [*self.known.values()]


@dataclass
class Doors:
    address: str
    records: Records
    backends: list[Adapted]

    def record(self, session: str, *adapters: str, ready: bool = True) -> None:
        known, names = self.records.known[session], frozenset(("base", *adapters))
        of = {name: name for name in adapters}
        self.records.known[session] = replace(known, models=names, adapters=of, ready=ready)

    def ask(self, model: str, **fields: Any) -> httpx.Response:
        return post(self.address, "chat/completions", chat(model=model, **fields))


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    """Two engines with the adapter acme, and a fleet that does not look by itself."""
    monkeypatch.setattr(engines, "LOOK_SECONDS", 3600.0)
    records, backends = Records(), [Adapted(session, "acme") for session in ("a", "b")]
    with ExitStack() as stack:
        for each in backends:
            url = f"unix://{tmp_path}/{each.session}.sock"
            stack.enter_context(served(each, url))
            models = frozenset({"base", "acme"})
            records.known[each.session] = Known(each.session, url, models, 4, None, "base", {"acme": "acme"})
        address = stack.enter_context(served_door(Settings(), directory=records))
        yield Doors(address, records, backends)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_goes_to_another_engine_once_one_has_unloaded_its_adapter(doors: Doors, stream: bool) -> None:
    first = doors.ask("acme").json()["choices"][0]["message"]["content"]  # which is warm now
    other = "b" if first == "a" else "a"
    [unloads, keeps] = sorted(doors.backends, key=lambda backend: backend.session != first)
    unloads.names.clear()  # both are recorded with it still
    answer = doors.ask("acme", stream=stream)
    assert answer.status_code == 200
    assert f'"content":"{other}"' in answer.text.replace(": ", ":")
    keeps.names.clear()
    gone = doors.ask("acme", stream=stream)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    assert doors.ask("base").status_code == 200


def test_the_events_of_another_engine_s_response_are_numbered_from_the_first(doors: Doors) -> None:
    warm = doors.ask("acme").json()["choices"][0]["message"]["content"]
    [unloads, keeps] = sorted(doors.backends, key=lambda backend: backend.session != warm)
    unloads.names.clear()
    body = {"model": "acme", "input": HELLO, "stream": True}
    events = httpx.post(f"{doors.address}/v1/responses", json=body, timeout=PATIENCE).text
    numbers = [int(number) for number in re.findall(r'"sequence_number":(\d+)', events)]
    assert numbers == list(range(len(numbers)))
    assert f'"delta":"{keeps.session}"' in events


def test_a_stream_that_only_waited_goes_to_another_engine_too(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.openai.texts.PING_SECONDS", 0.05)
    warm = doors.ask("acme").json()["choices"][0]["message"]["content"]
    [unloads, keeps] = sorted(doors.backends, key=lambda backend: backend.session != warm)
    unloads.hang, unloads.answer = True, lambda request: []
    url, body = f"{doors.address}/v1/chat/completions", chat(model="acme", stream=True)
    with httpx.stream("POST", url, json=body, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": waiting"
        eventually(lambda: unloads.open)
        unloads.names.clear()
        unloads.fail_all(UnknownAdapterError("adapter: acme is not loaded", "adapter"))
        events = "".join(lines).replace(": ", ":")
    assert f'"content":"{keeps.session}"' in events


def test_one_that_was_recorded_since_the_last_look_is_known(doors: Doors) -> None:
    assert doors.ask("nova").status_code == 404
    assert httpx.get(f"{doors.address}/v1/models/nova").status_code == 404
    doors.backends[0].names.add("nova")
    doors.record("a", "acme", "nova")
    assert httpx.get(f"{doors.address}/v1/models/nova").json()["parent"] == "base"
    assert doors.ask("nova").json()["choices"][0]["message"]["content"] == "a"


def test_one_whose_only_engine_is_not_ready_is_waited_for(doors: Doors) -> None:
    doors.record("b", "acme", "nova", ready=False)
    answer = doors.ask("nova")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert doors.ask("acme").status_code == 200  # the other one has it
