"""Prometheus metrics of an engine, read from its statistics at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.api.backend import Backend
from thothy_ai.engine.api.statistics import BOUNDS

_PREFIX = "thothy_engine_"
_GAUGES: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "batch_size": ("Sequences in the last step.", lambda stats: stats.core.batch_size),
    "running": ("Sequences running.", lambda stats: stats.scheduler.running),
    "waiting": ("Requests waiting for a row or for KV blocks.", lambda stats: stats.scheduler.waiting),
    "adapters": ("Adapters that are loaded.", lambda stats: stats.adapters.loaded),
    "adapters_resident": ("Adapters on the device.", lambda stats: stats.adapters.resident),
    "adapter_waiting": (
        "Sequences waiting for a place of their adapter on the device.",
        lambda stats: stats.adapters.waiting,
    ),
    "memory_used_bytes": (
        "Memory in use: of the device, or of the process on a CPU.",
        lambda stats: stats.memory.used_bytes,
    ),
    "memory_total_bytes": ("Memory of the device, or of the host on a CPU.", lambda stats: stats.memory.total_bytes),
    "memory_planned_bytes": (
        "Memory planned at start: weights, KV pool and workspace.",
        lambda stats: stats.memory.planned_bytes,
    ),
}
_COUNTERS: dict[str, tuple[str, Callable[[EngineStats], float]]] = {
    "steps": ("Forward passes.", lambda stats: stats.core.steps),
    "busy_seconds": ("Seconds the device computed.", lambda stats: stats.core.busy_seconds),
    "mask_seconds": ("Seconds the host filled grammar masks.", lambda stats: stats.core.mask_seconds),
    "gap_seconds": (
        "Seconds with requests in flight in which the device did not compute.",
        lambda stats: stats.core.gap_seconds,
    ),
    "replayed_steps": ("Forward passes replayed from a CUDA graph.", lambda stats: stats.core.replayed_steps),
    "drafted_tokens": ("Tokens computed as drafts.", lambda stats: stats.core.drafted_tokens),
    "accepted_tokens": ("Drafted tokens that were right.", lambda stats: stats.core.accepted_tokens),
    "output_tokens": ("Tokens generated.", lambda stats: stats.core.output_tokens),
    "repetitions": ("Requests stopped because they repeated themselves.", lambda stats: stats.text.repetitions),
    "saved_tokens": (
        "Output tokens that stopped requests had left of their max_tokens.",
        lambda stats: stats.text.saved_tokens,
    ),
    "preemptions": ("Preemptions of running sequences.", lambda stats: stats.scheduler.preemptions),
    "adapter_copies": ("Adapters copied to the device.", lambda stats: stats.adapters.copies),
    "prefix_cache_queried_tokens": (
        "Prompt tokens looked up in the prefix cache.",
        lambda stats: stats.core.prompt_tokens,
    ),
    "prefix_cache_hit_tokens": ("Prompt tokens found in the prefix cache.", lambda stats: stats.core.cached_tokens),
}
_HISTOGRAMS: dict[str, tuple[str, str]] = {  # by their names in `TimingStats`
    "step_seconds": ("step_duration_seconds", "Device seconds of a step."),
    "step_sequences": ("step_sequences", "Sequences in a step."),
    "queue_seconds": ("request_queue_seconds", "From a request's arrival at the engine to its first step."),
    "first_token_seconds": (
        "time_to_first_token_seconds",
        "From a request's arrival at the engine to its first sampled token.",
    ),
    "output_token_seconds": (
        "time_per_output_token_seconds",
        "Seconds per output token after the first, averaged over each request.",
    ),
}


class EngineCollector(Collector):
    """Collects metrics from an engine's backend; `name` is the engine's."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._name = name

    def collect(self) -> Iterator[Metric]:
        """Every metric, with values as of the last step."""
        stats = self._backend.stats()
        for name, (text, value) in _GAUGES.items():
            yield GaugeMetricFamily(_PREFIX + name, text, value=value(stats))
        for name, (text, value) in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, text, value=value(stats))
        yield from _by_label(stats)
        for field, (name, text) in _HISTOGRAMS.items():
            bounds, observed = BOUNDS[field], getattr(stats.timing, field)
            total, *counts = observed or (0.0, *(0 for _ in range(len(bounds) + 1)))
            buckets = list(zip((*map(str, map(float, bounds)), "+Inf"), accumulate(counts), strict=True))
            yield HistogramMetricFamily(_PREFIX + name, text, buckets, total)
        text = "1 for each adapter that is loaded, with the digest of its weights."
        adapters = GaugeMetricFamily(f"{_PREFIX}adapter", text, labels=["adapter", "digest"])
        for adapter in self._backend.adapters():
            adapters.add_metric([adapter.name, adapter.digest], 1)
        yield adapters
        info = self._backend.info()
        own = {"engine": self._name, "session_id": info.session_id}
        labels = {**own, "model": info.model, "device": info.device, "dtype": info.dtype}
        yield InfoMetricFamily(_PREFIX.rstrip("_"), "Fixed properties of the engine.", value=labels)


def registry_of(backend: Backend, name: str) -> CollectorRegistry:
    """A registry with only this engine's metrics."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(backend, name))
    return registry


def _by_label(stats: EngineStats) -> Iterator[Metric]:
    blocks, core = stats.blocks, stats.core
    states = {"used": blocks.used, "cached": blocks.cached, "free": blocks.total - blocks.used - blocks.cached}
    yield _labelled(GaugeMetricFamily(f"{_PREFIX}kv_blocks", "Blocks of the KV pool.", labels=["state"]), states)
    tokens = {"prefill": core.prefill_tokens, "decode": core.decode_tokens}
    yield _labelled(CounterMetricFamily(f"{_PREFIX}tokens", "Tokens computed.", labels=["phase"]), tokens)
    seconds = {"prefill": core.prefill_seconds, "decode": core.decode_seconds}
    yield _labelled(CounterMetricFamily(f"{_PREFIX}step_seconds", "Busy seconds by phase.", labels=["phase"]), seconds)
    requests = {
        "finished": core.requests_finished,
        "aborted": core.requests_aborted,
        "refused": stats.requests_refused,
    }
    errors = dict(zip(stats.text.error_codes, stats.text.error_counts, strict=True))
    text = "Requests refused or failed, by the error's code."
    yield _labelled(CounterMetricFamily(f"{_PREFIX}errors", text, labels=["code"]), errors)
    yield _labelled(CounterMetricFamily(f"{_PREFIX}requests", "Requests by outcome.", labels=["outcome"]), requests)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric([label], value)
    return family
