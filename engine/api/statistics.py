"""An engine's statistics, grouped by what fills them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thothy_ai.engine.api.numbers import Finite

HistogramStats = tuple[Finite, ...]  # the sum of what was observed, then how often in each bucket; () if never

# Upper bounds of each histogram's buckets, by its name in `TimingStats`; one more bucket has what is above them all.
_WAITS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
BOUNDS: dict[str, tuple[float, ...]] = {
    "step_seconds": (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.4, 0.8, 1.6, 5, 20),
    "step_sequences": (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 640, 768, 1024, 2048),
    "queue_seconds": _WAITS,
    "first_token_seconds": _WAITS,
    "output_token_seconds": (0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.4, 0.8, 1.6, 5),
}


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Filled by the scheduler: sequences at this moment, and a counter."""

    running: int = 0
    waiting: int = 0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Filled by the block pool: KV blocks at this moment."""

    total: int = 0
    used: int = 0
    cached: int = 0  # free, but still holding a prefix that can be hit


@dataclass(frozen=True, slots=True)
class CoreStats:
    """Filled by the engine core: counters since the start, and the size of the last step.

    A request with several candidates counts once for each of them, and a beam search once for each beam of each step.
    """

    steps: int = 0
    batch_size: int = 0  # sequences in the last step
    requests_finished: int = 0
    requests_aborted: int = 0
    requests_refused: int = 0
    prompt_tokens: int = 0  # of admitted requests
    cached_tokens: int = 0  # of those, found in the prefix cache
    prefill_tokens: int = 0  # computed in chunks that begin inside a prompt, again after a preemption too
    decode_tokens: int = 0
    output_tokens: int = 0
    drafted_tokens: int = 0  # of decode_tokens
    accepted_tokens: int = 0  # of those, the right ones
    busy_seconds: Finite = 0.0  # in steps; a GPU's launch gaps within a step count
    prefill_seconds: Finite = 0.0  # parts of busy_seconds
    decode_seconds: Finite = 0.0
    direct_seconds: Finite = 0.0  # of requests that nobody books: not jobs
    mask_seconds: Finite = 0.0  # of the core's thread: preparing grammar masks, and waiting for those that fill them
    wait_seconds: Finite = 0.0  # of the host, in waiting for the device; none on a CPU
    replayed_steps: int = 0  # whose forward pass was replayed from a CUDA graph
    attributed_seconds: Finite = 0.0  # handed to requests so far; equals busy_seconds when idle
    gap_seconds: Finite = 0.0  # requests were in flight, and the device computed nothing: the host was late

    def plus(self, **gained: float) -> CoreStats:
        """These counters, and what some of them gained."""
        return replace(self, **{name: getattr(self, name) + amount for name, amount in gained.items()})


@dataclass(frozen=True, slots=True)
class TimingStats:
    """Filled by the engine core: histograms since the start, over the buckets of `BOUNDS`.

    Requests count once they run; the candidates of a request one by one, beams not at all. A first token is one that
    was sampled: tokens that a grammar forces are known before. Time per output token is that after the first, on
    average over a request's.
    """

    step_seconds: HistogramStats = ()  # of the device
    step_sequences: HistogramStats = ()
    queue_seconds: HistogramStats = ()  # from submission to the first step; tokenizing and the schema included
    first_token_seconds: HistogramStats = ()  # from submission
    output_token_seconds: HistogramStats = ()


@dataclass(frozen=True, slots=True)
class AdapterStats:
    """Filled by the engine core: adapters at this moment, and counters since the start.

    `changes` counts what was loaded, replaced and unloaded: what an engine lists has changed only if this has.
    """

    changes: int = 0
    loaded: int = 0
    resident: int = 0  # of these, on the device
    waiting: int = 0  # sequences that wait for a place of their adapter on the device
    copies: int = 0  # of adapters to the device


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Filled by the memory gauge, in bytes: of the device (every process on it counts), or of this process on a CPU."""

    used_bytes: int = 0
    total_bytes: int = 0
    planned_bytes: int = 0  # weights + KV pool + workspace, as planned at start


@dataclass(frozen=True, slots=True)
class TextStats:
    """Filled by the frontend: requests that never reached the core, and those that it stopped.

    `saved_tokens`: what the stopped ones left of their `max_tokens`. They might have ended by themselves before.
    """

    requests_refused: int = 0
    repetitions: int = 0  # requests that were stopped since they repeated themselves
    saved_tokens: int = 0
    error_codes: tuple[str, ...] = ()  # of the requests that were refused or failed
    error_counts: tuple[int, ...] = ()  # how many, by code


@dataclass(frozen=True, slots=True)
class AbandonedStats:
    """Filled by the server: the costs of requests whose client left."""

    kept: int = 0  # that a client can ask for
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges of this moment and counters since the start, grouped by what fills them."""

    scheduler: SchedulerStats = SchedulerStats()
    blocks: BlockStats = BlockStats()
    core: CoreStats = CoreStats()
    memory: MemoryStats = MemoryStats()
    text: TextStats = TextStats()
    abandoned: AbandonedStats = AbandonedStats()
    timing: TimingStats = TimingStats()
    adapters: AdapterStats = AdapterStats()

    @property
    def requests_refused(self) -> int:
        """By the frontend or by the core."""
        return self.text.requests_refused + self.core.requests_refused
