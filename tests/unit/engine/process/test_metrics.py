"""Metrics are the engine's own counters under names that dashboards and alerts know."""

from __future__ import annotations

import re

from prometheus_client import generate_latest

from thothy_ai.engine.api import (
    AdapterInfo,
    AdapterStats,
    BlockStats,
    CoreStats,
    EngineInfo,
    EngineStats,
    GenerationRequest,
    MemoryStats,
    SchedulerStats,
    TextStats,
    TimingStats,
)
from thothy_ai.engine.api.backend import Sink
from thothy_ai.engine.process.metrics import registry_of

STATS = EngineStats(
    SchedulerStats(running=2, waiting=3, preemptions=12),
    BlockStats(total=100, used=30, cached=20),
    CoreStats(
        steps=8,
        batch_size=4,
        requests_finished=9,
        requests_aborted=10,
        requests_refused=7,
        prompt_tokens=13,
        cached_tokens=14,
        prefill_tokens=15,
        decode_tokens=16,
        output_tokens=17,
        busy_seconds=18.5,
        prefill_seconds=19.5,
        decode_seconds=20.5,
        mask_seconds=21.5,
        replayed_steps=6,
        drafted_tokens=9,
        accepted_tokens=4,
        gap_seconds=22.5,
    ),
    MemoryStats(used_bytes=5, total_bytes=6, planned_bytes=7),
    TextStats(requests_refused=4, repetitions=44, saved_tokens=45, error_codes=("prompt_too_long",), error_counts=(3,)),
    timing=TimingStats(step_seconds=(4.5, *range(1, 19))),
    adapters=AdapterStats(changes=1, loaded=46, resident=47, waiting=48, copies=49),
)
HISTOGRAM = re.compile(r"\w+_(bucket\{.*|count|sum) ")
EXPECTED = """
thothy_engine_batch_size 4.0
thothy_engine_running 2.0
thothy_engine_waiting 3.0
thothy_engine_kv_blocks{state="used"} 30.0
thothy_engine_kv_blocks{state="cached"} 20.0
thothy_engine_kv_blocks{state="free"} 50.0
thothy_engine_memory_used_bytes 5.0
thothy_engine_memory_total_bytes 6.0
thothy_engine_memory_planned_bytes 7.0
thothy_engine_adapters 46.0
thothy_engine_adapters_resident 47.0
thothy_engine_adapter_waiting 48.0
thothy_engine_adapter_copies_total 49.0
thothy_engine_adapter{adapter="acme",digest="d"} 1.0
thothy_engine_steps_total 8.0
thothy_engine_requests_total{outcome="finished"} 9.0
thothy_engine_repetitions_total 44.0
thothy_engine_saved_tokens_total 45.0
thothy_engine_requests_total{outcome="aborted"} 10.0
thothy_engine_requests_total{outcome="refused"} 11.0
thothy_engine_preemptions_total 12.0
thothy_engine_prefix_cache_queried_tokens_total 13.0
thothy_engine_prefix_cache_hit_tokens_total 14.0
thothy_engine_tokens_total{phase="prefill"} 15.0
thothy_engine_tokens_total{phase="decode"} 16.0
thothy_engine_drafted_tokens_total 9.0
thothy_engine_accepted_tokens_total 4.0
thothy_engine_output_tokens_total 17.0
thothy_engine_busy_seconds_total 18.5
thothy_engine_mask_seconds_total 21.5
thothy_engine_gap_seconds_total 22.5
thothy_engine_replayed_steps_total 6.0
thothy_engine_errors_total{code="prompt_too_long"} 3.0
thothy_engine_step_seconds_total{phase="prefill"} 19.5
thothy_engine_step_seconds_total{phase="decode"} 20.5
thothy_engine_info{device="cpu",dtype="float32",engine="box-0",model="m",session_id="s"} 1.0
"""


class Still:
    """A backend that only says how it is."""

    def stats(self) -> EngineStats:
        return STATS

    def info(self) -> EngineInfo:
        return EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 0.0)

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return (AdapterInfo("acme", "d", rank=16),)

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        raise NotImplementedError

    def abort(self, request_id: str) -> None:
        raise NotImplementedError

    def stream(self, request_id: str) -> None:
        raise NotImplementedError

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


def test_exposition() -> None:
    lines = generate_latest(registry_of(Still(), "box-0")).decode().splitlines()
    plain = [line for line in lines if not line.startswith("#") and not HISTOGRAM.match(line)]
    assert sorted(plain) == sorted(EXPECTED.split("\n")[1:-1])


def test_histograms_are_cumulative_and_those_without_a_value_are_empty() -> None:
    registry = registry_of(Still(), "box-0")
    name = "thothy_engine_step_duration_seconds"
    assert registry.get_sample_value(f"{name}_sum") == 4.5
    assert registry.get_sample_value(f"{name}_count") == sum(range(1, 19))
    assert registry.get_sample_value(f"{name}_bucket", {"le": "0.0025"}) == 1 + 2
    assert registry.get_sample_value(f"{name}_bucket", {"le": "20.0"}) == sum(range(1, 18))
    assert registry.get_sample_value("thothy_engine_time_to_first_token_seconds_count") == 0
