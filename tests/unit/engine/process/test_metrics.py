"""Metrics are the engine's own counters under names that dashboards and alerts know."""

from __future__ import annotations

from prometheus_client import generate_latest

from thothy_ai.engine.api import (
    BlockStats,
    CoreStats,
    EngineInfo,
    EngineStats,
    GenerationRequest,
    MemoryStats,
    SchedulerStats,
    TextStats,
)
from thothy_ai.engine.backend import Sink
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
    ),
    MemoryStats(used_bytes=5, total_bytes=6, planned_bytes=7),
    TextStats(requests_refused=4, repetitions=44, saved_tokens=45),
)
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
thothy_engine_output_tokens_total 17.0
thothy_engine_busy_seconds_total 18.5
thothy_engine_mask_seconds_total 21.5
thothy_engine_step_seconds_total{phase="prefill"} 19.5
thothy_engine_step_seconds_total{phase="decode"} 20.5
thothy_engine_info{device="cpu",dtype="float32",model="m",session_id="s"} 1.0
"""


class Still:
    """A backend that only says how it is."""

    def stats(self) -> EngineStats:
        return STATS

    def info(self) -> EngineInfo:
        return EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 0.0)

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
    lines = generate_latest(registry_of(Still())).decode().splitlines()
    assert sorted(line for line in lines if not line.startswith("#")) == sorted(EXPECTED.split("\n")[1:-1])
