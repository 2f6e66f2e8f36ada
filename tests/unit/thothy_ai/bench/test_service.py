"""What `thothy bench service` compares: the drains' order, their seeds, and the figure that compares two of them."""

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


def test_the_reference_has_the_services_requests_with_other_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the drain behind it has the very seeds of the service."""
    registry.load_extra((first_call.MODULE,))
    sent: dict[str, Sequence[GenerationRequest]] = {}
    seeds = [901, 902, 903, 904]

    async def bare(_: object, requests: Sequence[GenerationRequest], name: str, __: Progress) -> ServiceRun:
        sent[name] = requests
        return drained(name)

    async def through_service(
        _: object, __: object, jobs: Sequence[Request], ___: Progress, name: str = "service"
    ) -> tuple[ServiceRun, QueueTimes, list[int]]:
        sent[name] = []
        return drained(name), TIMES, seeds[: len(jobs)]

    monkeypatch.setattr(bench, "connect", lambda *_: _Client())
    monkeypatch.setattr(bench, "_bare", bare)
    monkeypatch.setattr(bench, "_through_service", through_service)
    options = parse_service(["--shape", "tiny", "--jobs", "4", "--kind", "hook"])
    settings = SimpleNamespace(require_engine_url=str, reveal_engine_token=str, worker_in_flight=1)
    running: Any = SimpleNamespace(settings=settings)
    asyncio.run(bench._measure(options, running, Progress(io.StringIO())))
    *_, before, service, reference, repeated = sent
    assert [before, service, reference, repeated] == [
        "bare engine, before",
        "service",
        "bare engine",
        "bare engine, same texts",
    ]

    def seeds_of(name: str) -> list[int | None]:
        return [request.sampling.seed for request in sent[name]]

    assert seeds_of(repeated) == seeds
    assert not set(seeds_of(reference)) & {*seeds, *seeds_of(before)}
    prompts = [[(each.messages, each.schema) for each in sent[name]] for name in (before, reference, repeated)]
    assert prompts[0] == prompts[1] == prompts[2]


def test_the_service_is_compared_with_the_drain_of_other_texts() -> None:
    runs = drained("before", 9.0), drained("service", 6.0), drained("bare", 5.0), drained("same texts", 3.0)
    figures = dict(service_figures(*runs, TIMES, "GPU-hour"))
    assert figures["service over bare engine"] == "1.200"
    assert figures["seconds"] == "9.00; 6.00; 5.00; 3.00"
