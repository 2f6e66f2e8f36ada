"""What the core's process says to its parent while it starts, and in which order."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process import core_process, resident
from thothy_ai.engine.wire.core_messages import CoreEnded, CoreReady
from thothy_ai.engine.wire.model_text import RemoteText

INFO = EngineInfo("session", "model", "cpu", "float32", 16, 8, 128, 0.0)


class Core:
    """Reports as soon as it is made, and has ended."""

    failure = None

    def __init__(self, _: object, __: EngineOptions, on_events: Any, *___: object) -> None:
        on_events([])

    def info(self) -> EngineInfo:
        return INFO

    def adapters(self) -> tuple[()]:
        return ()

    def join(self) -> None:
        """At once."""


def test_nothing_is_reported_before_the_parent_knows_that_the_core_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    channel = SimpleNamespace(send=lambda message: said.append(type(message)))
    reports = core_process.Reports.start
    monkeypatch.setattr(resident, "load", lambda *_: None)
    monkeypatch.setattr(resident, "start_core", Core)
    monkeypatch.setattr(core_process.Reports, "start", lambda self, core: (said.append("reports"), reports(self, core)))
    monkeypatch.setattr(core_process.Reports, "_run", lambda self, core: None)
    core_process._run(channel, EngineOptions(url=""), RemoteText(channel), Future())
    assert said == [CoreReady, "reports", CoreEnded]
