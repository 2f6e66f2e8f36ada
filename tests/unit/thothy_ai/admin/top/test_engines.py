"""Rates of an engine come from the difference of its counters over the last seconds, and begin anew with a session."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from thothy_ai.admin.engines import engine_state
from thothy_ai.admin.top.engines import WINDOW_SECONDS, EngineMeter
from thothy_ai.engine.api import BlockStats, CoreStats, EngineInfo, EngineStats, SchedulerStats
from thothy_ai.engine.api.errors import EngineLostError


def info(session: str = "one") -> EngineInfo:
    return EngineInfo(session, "m", "cpu", "float32", 16, 10, 100, 0.0)


def stats(at: float) -> EngineStats:
    """After so many seconds of steady work."""
    whole = int(at)
    core = CoreStats(
        steps=20 * whole, busy_seconds=0.5 * at, mask_seconds=0.02 * at, prefill_tokens=300 * whole,
        output_tokens=40 * whole, prompt_tokens=400 * whole, cached_tokens=100 * whole,
    )  # fmt: skip
    return EngineStats(SchedulerStats(running=3, waiting=2), BlockStats(total=10, used=4), core)


def test_steady_work_has_steady_rates() -> None:
    meter = EngineMeter()
    for second in range(100, 100 + 3 * int(WINDOW_SECONDS)):
        figures = meter.measure(float(second), info(), stats(second))
    assert (figures.running, figures.waiting, figures.kv_used) == (3, 2, 0.4)
    assert figures.prompt_tokens_per_second == pytest.approx(300)
    assert figures.output_tokens_per_second == pytest.approx(40)
    assert figures.step_seconds == pytest.approx(0.025)
    assert figures.mask_seconds == pytest.approx(0.001)
    assert figures.busy_share == pytest.approx(0.5)
    assert figures.prefix_hit_rate == pytest.approx(0.25)


def test_the_first_sample_and_a_new_session_have_no_rates() -> None:
    meter = EngineMeter()
    meter.measure(0.0, info(), stats(50))
    for figures in (EngineMeter().measure(0.0, info(), stats(50)), meter.measure(1.0, info("two"), stats(1))):
        assert figures.output_tokens_per_second is None
        assert figures.step_seconds == pytest.approx(0.025)  # since its start, and so is the next
        assert figures.prefix_hit_rate == pytest.approx(0.25)


def test_asking_again_and_again_adds_no_log_handlers(tmp_path: Path) -> None:
    logger = logging.getLogger("thothy_ai.engine")
    handlers = []
    for _ in range(3):
        with pytest.raises(EngineLostError):
            asyncio.run(engine_state(f"unix://{tmp_path}/engine.sock", None))
        handlers.append(list(logger.handlers))
    assert handlers[0] == handlers[2]
