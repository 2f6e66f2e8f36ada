"""What `thothy bench service` compares: the drains' order, their seeds, and the figure that compares them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from thothy_ai.bench.options import parse_service
from thothy_ai.bench.progress import Progress
from thothy_ai.bench.service import run as bench
from thothy_ai.bench.service.figures import QueueTimes, Sample, ServiceRun, service_figures
from thothy_ai.demo import first_call
from thothy_ai.engine.api import CoreStats, EngineInfo, EngineStats, GenerationRequest, SchedulerStats
from thothy_ai.jobs import Request, registry

INFO = EngineInfo("", "tiny", "cpu", "float32", 16, 64, 8192, 0.0)
TIMES = QueueTimes(0.1, (0.1, 0.2, 0.3), 0.01, 0.1, 8, 0.01, 0.0, {"rejected (truncated)": 4})


class _Client:
    async def start(self) -> None: ...

    async def info(self) -> EngineInfo:
        return INFO

    async def close(self) -> None: ...


def drained(name: str, seconds: float = 1.0) -> ServiceRun:
    stats = EngineStats(SchedulerStats(0, 0), core=CoreStats())
    return ServiceRun(name, seconds, 4, 4, (Sample(0.0, stats), Sample(seconds, stats)))


def test_the_service_is_between_drains_of_its_requests_with_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.load_extra((first_call.MODULE,))
    sent: dict[str, Sequence[GenerationRequest]] = {}

    async def bare(_: object, requests: Sequence[GenerationRequest], name: str, __: Progress) -> ServiceRun:
        sent[name] = requests
        return drained(name)

    async def through_service(
        _: object, __: object, ___: Sequence[Request], ____: Progress, name: str = "service"
    ) -> tuple[ServiceRun, QueueTimes]:
        sent[name] = []
        return drained(name), TIMES

    monkeypatch.setattr(bench, "connect", lambda *_: _Client())
    monkeypatch.setattr(bench, "_bare", bare)
    monkeypatch.setattr(bench, "_through_service", through_service)
    options = parse_service(["--shape", "tiny", "--jobs", "4", "--kind", "hook"])
    settings = SimpleNamespace(require_engine_url=str, reveal_engine_token=str, worker_in_flight=1)
    running: Any = SimpleNamespace(settings=settings)
    asyncio.run(bench._measure(options, running, Progress(io.StringIO())))
    *_, first, before, service, after = sent
    assert [first, before, service, after] == [
        "bare engine, first",
        "bare engine, before",
        "service",
        "bare engine, after",
    ]
    seeds = [request.sampling.seed for name in (first, before, after) for request in sent[name]]
    assert len(set(seeds)) == len(seeds) == 12
    prompts = [[(each.messages, each.schema) for each in sent[name]] for name in (first, before, after)]
    assert prompts[0] == prompts[1] == prompts[2]


def test_the_service_is_compared_with_the_mean_of_the_drains_around_it() -> None:
    runs = drained("first", 9.0), drained("before", 6.0), drained("service", 6.0), drained("after", 4.0)
    figures = dict(service_figures(*runs, TIMES, "GPU-hour"))
    assert figures["service over the bare engine around it"] == "1.200"
    assert figures["seconds"] == "9.00; 6.00; 6.00; 4.00"
