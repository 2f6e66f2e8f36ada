"""What an engine did between two moments is the difference of its counters around them."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest

from benchmarks.slow_tokens import HEADS, Watch
from thothy_ai.bench.service.load import RequestTiming
from thothy_ai.engine.api import CoreStats, EngineStats, SchedulerStats


class Engine:
    """Each look finds one step more, of 10 ms, with 4 tokens of prompts and 2 others; every second is replayed.

    The time is 1 s at the first look, and 10 ms later at each that follows.
    """

    def __init__(self, looks: int) -> None:
        self.looked, self.looks, self.moments, self.enough = looks, count(), list[float](), asyncio.Event()

    async def stats(self) -> EngineStats:
        number = next(self.looks)
        self.moments.append(1 + 0.01 * number)
        if len(self.moments) == self.looked:
            self.enough.set()
        core = CoreStats(
            steps=number, replayed_steps=number // 2, prefill_tokens=4 * number, decode_tokens=2 * number,
            busy_seconds=0.01 * number, gap_seconds=0.001 * number,
        )  # fmt: skip
        return EngineStats(core=core, scheduler=SchedulerStats(waiting=1))

    def perf_counter(self) -> float:
        return self.moments[-1]


async def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Watch:
    monkeypatch.setattr("benchmarks.slow_tokens.time", SimpleNamespace(perf_counter=engine.perf_counter))
    watch = Watch(engine)  # type: ignore[arg-type]  # of a client, it needs no more
    async with watch.running():
        await engine.enough.wait()
    return watch


def test_only_late_first_tokens_have_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(12)
    watch = asyncio.run(watched(engine, monkeypatch))
    began, moments = engine.moments[0], engine.moments
    begin, end = (moments[2] + moments[3]) / 2 - began, (moments[8] + moments[9]) / 2 - began
    late = RequestTiming(begin - 0.001, 0.001, end - begin, 1.0, 5)
    prompt, failed = RequestTiming(0.0, 0.0, 1e-4, 1.0, 5), RequestTiming(0.0, 0.0, 0.0, error="lost")
    [row] = watch.rows(began, [prompt, late, failed], (end - begin) / 2)
    found = dict(zip(HEADS, row, strict=True))
    assert found["sent at, s"] == f"{begin:.2f}"
    assert found["first token, ms"] == f"{1e3 * (end - begin):.0f}"
    assert [found[name] for name in ("steps", "replayed", "prompt tokens", "other tokens")] == ["7", "3", "28", "14"]
    assert (found["busy, ms"], found["idle, ms"]) == ("70", "7")
    assert found["some waited, ms"] == "70"


def test_a_request_after_the_last_look_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(2)
    watch = asyncio.run(watched(engine, monkeypatch))
    [row] = watch.rows(engine.moments[-1], [RequestTiming(5.0, 0.0, 1.0, 1.0, 5)], 0.2)
    assert dict(zip(HEADS, row, strict=True))["steps"] == "0"
