"""Histograms of the core: each step once, each request once, and only from what was sampled."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import fields

import pytest

from tests.support.arithmetic_model import arithmetic_core
from tests.support.engine_driver import EngineDriver
from thothy_ai.engine.api import EngineStats, SamplingParams, TimingStats
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.statistics import BOUNDS, HistogramStats
from thothy_ai.engine.core.timing import Histogram
from thothy_ai.engine.wire.codec import pack, unpack

TINY = {"block_size": 2, "num_blocks": 16, "max_rows": 4, "token_budget": 8, "max_context": 30}


def run(counts: Iterable[int], *, overlap: bool = True, since: float | None = 100.0) -> EngineStats:
    """Requests with so many output tokens, submitted `since` seconds ago."""
    at = time.monotonic() - since if since is not None else 0.0
    asked = [
        CoreRequest(str(number), (1 + number, 2, 3), SamplingParams(max_tokens=count), submitted_at=at)
        for number, count in enumerate(counts)
    ]
    with EngineDriver(lambda on_events: arithmetic_core(EngineConfig(**TINY, overlap=overlap), on_events)) as driver:
        driver.run(asked)
        return driver.core.stats()


def observed(values: HistogramStats) -> float:
    return sum(values[1:])


@pytest.mark.parametrize("overlap", [False, True])
def test_every_step_and_every_request_counts_once_through_preemptions(overlap: bool) -> None:
    stats = run([20] * 6, overlap=overlap)
    timing = stats.timing
    assert stats.scheduler.preemptions > 0
    assert observed(timing.step_seconds) == observed(timing.step_sequences) == stats.core.steps
    assert timing.step_seconds[0] == pytest.approx(stats.core.busy_seconds)
    assert observed(timing.queue_seconds) == observed(timing.first_token_seconds) == 6
    assert observed(timing.output_token_seconds) == 6
    assert stats.core.gap_seconds > 0


def test_waits_begin_when_a_request_was_submitted() -> None:
    timing = run([3, 3]).timing
    assert timing.first_token_seconds[0] >= timing.queue_seconds[0] >= 2 * 100
    assert timing.output_token_seconds[0] < 100, "only what came after the first token"


def test_a_request_of_one_token_has_no_time_per_further_token() -> None:
    timing = run([1, 1, 2]).timing
    assert observed(timing.first_token_seconds) == 3
    assert observed(timing.output_token_seconds) == 1


def test_requests_of_unknown_age_have_no_waits() -> None:
    timing = run([2, 2], since=None).timing
    assert observed(timing.queue_seconds) == observed(timing.first_token_seconds) == 0
    assert observed(timing.output_token_seconds) == 2


def test_a_value_on_a_bound_belongs_to_it_and_a_large_one_to_the_last_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.stats == (12.0, 2, 1, 1)


def test_bounds_ascend_and_belong_to_the_fields() -> None:
    assert {field.name for field in fields(TimingStats)} == set(BOUNDS)
    assert all(list(bounds) == sorted(set(bounds)) for bounds in BOUNDS.values())


def test_histograms_cross_processes() -> None:
    stats = run([2])
    assert unpack(EngineStats, pack(stats)) == stats
