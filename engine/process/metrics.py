"""Prometheus metrics of an engine, read from its own counters at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.backend import Backend

_PREFIX = "thothy_engine_"
_GAUGES = {
    "batch_size": "Sequences in the last step.",
    "running": "Sequences running.",
    "waiting": "Requests waiting for a row or for KV blocks.",
    "memory_used_bytes": "Memory in use: of the device, or of the process on a CPU.",
    "memory_total_bytes": "Memory of the device, or of the host on a CPU.",
    "memory_planned_bytes": "Memory planned at start: weights, KV pool and workspace.",
}
_COUNTERS = {
    "steps": "Forward passes.",
    "busy_seconds": "Seconds the device computed.",
    "output_tokens": "Tokens generated.",
    "preemptions": "Preemptions of running sequences.",
}


class EngineCollector(Collector):
    """Collects from one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Metric]:
        """Every metric, with values as of the last step."""
        stats = self._backend.stats()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(_PREFIX + name, text, value=getattr(stats, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, text, value=getattr(stats, name))
        yield CounterMetricFamily(
            f"{_PREFIX}prefix_cache_queried_tokens",
            "Prompt tokens looked up.",
            value=stats.prompt_tokens,
        )
        yield CounterMetricFamily(f"{_PREFIX}prefix_cache_hit_tokens", "Of those, found.", value=stats.cached_tokens)
        yield from _by_label(stats)
        yield self._info()

    def _info(self) -> Metric:
        info = self._backend.info()
        labels = {"session_id": info.session_id, "model": info.model, "device": info.device, "dtype": info.dtype}
        return InfoMetricFamily(_PREFIX.rstrip("_"), "Fixed properties of the engine.", value=labels)


def registry_of(backend: Backend) -> CollectorRegistry:
    """A registry with this engine's metrics only."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(backend))
    return registry


def _by_label(stats: EngineStats) -> Iterator[Metric]:
    free = stats.blocks_total - stats.blocks_used - stats.blocks_cached
    blocks = {"used": stats.blocks_used, "cached": stats.blocks_cached, "free": free}
    yield _labelled(GaugeMetricFamily(f"{_PREFIX}kv_blocks", "Blocks of the KV pool.", labels=["state"]), blocks)
    tokens = {"prefill": stats.prefill_tokens, "decode": stats.decode_tokens}
    yield _labelled(CounterMetricFamily(f"{_PREFIX}tokens", "Tokens computed.", labels=["phase"]), tokens)
    seconds = {"prefill": stats.prefill_seconds, "decode": stats.decode_seconds}
    yield _labelled(CounterMetricFamily(f"{_PREFIX}step_seconds", "Busy seconds by phase.", labels=["phase"]), seconds)
    requests = {
        "finished": stats.requests_finished,
        "aborted": stats.requests_aborted,
        "refused": stats.requests_refused,
    }
    yield _labelled(CounterMetricFamily(f"{_PREFIX}requests", "Requests by outcome.", labels=["outcome"]), requests)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric([label], value)
    return family
