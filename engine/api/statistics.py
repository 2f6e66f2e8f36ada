"""An engine's statistics, grouped by the part that fills them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thothy_ai.engine.api.numbers import Finite

HistogramStats = tuple[Finite, ...]  # the sum of all values, then the count of each bucket; () without values

# Upper bounds of each histogram's buckets, by its name in `TimingStats`; one more bucket counts all larger values.
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
    """Filled by the scheduler: gauges of sequences, and a counter."""

    running: int = 0
    waiting: int = 0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Filled by the block pool: gauges of KV blocks."""

    total: int = 0
    used: int = 0
    cached: int = 0  # free, but with a prefix that can still be found


@dataclass(frozen=True, slots=True)
class CoreStats:
    """Filled by the engine core: counters since the start, and the size of the last step.

    A request with several candidates counts once per candidate, and a beam search once per beam and step.
    """

    steps: int = 0
    batch_size: int = 0  # sequences in the last step
    requests_finished: int = 0
    requests_aborted: int = 0
    requests_refused: int = 0
    prompt_tokens: int = 0  # prompt tokens of admitted requests
    cached_tokens: int = 0  # prompt tokens found in the prefix cache
    prefill_tokens: int = 0  # computed in pieces that begin inside a prompt; recomputation counts again
    decode_tokens: int = 0
    output_tokens: int = 0
    drafted_tokens: int = 0  # part of decode_tokens
    accepted_tokens: int = 0  # part of drafted_tokens that was right
    busy_seconds: Finite = 0.0  # in steps; a GPU's launch gaps within a step count
    prefill_seconds: Finite = 0.0  # parts of busy_seconds
    decode_seconds: Finite = 0.0
    direct_seconds: Finite = 0.0  # of requests that nobody books, since they are not jobs'
    mask_seconds: Finite = 0.0  # the core's thread prepared grammar masks, or waited for the threads that fill them
    wait_seconds: Finite = 0.0  # the host waited for the device; 0 on a CPU
    replayed_steps: int = 0  # steps whose forward pass was replayed from a CUDA graph
    attributed_seconds: Finite = 0.0  # charged to requests so far; equals busy_seconds when idle
    gap_seconds: Finite = 0.0  # the device idled while requests were in flight, since the host was late

    def plus(self, **gained: float) -> CoreStats:
        """These counters with the given gains added."""
        return replace(self, **{name: getattr(self, name) + amount for name, amount in gained.items()})


@dataclass(frozen=True, slots=True)
class TimingStats:
    """Filled by the engine core: histograms since the start, over the buckets of `BOUNDS`.

    Requests count once they run, each candidate separately; beams don't count. The first token is the first sampled
    one: tokens that a grammar forces are known earlier. Time per output token is a request's mean after its first.
    """

    step_seconds: HistogramStats = ()  # device time per step
    step_sequences: HistogramStats = ()
    queue_seconds: HistogramStats = ()  # from submission to the first step, with tokenization and schema compilation
    first_token_seconds: HistogramStats = ()  # from submission
    output_token_seconds: HistogramStats = ()


@dataclass(frozen=True, slots=True)
class AdapterStats:
    """Filled by the engine core: adapters at this moment, and counters since the start.

    `changes` counts loads, replacements and unloads; an engine's list of adapters has changed only if `changes` has.
    """

    changes: int = 0
    loaded: int = 0
    resident: int = 0  # adapters on the device
    waiting: int = 0  # sequences that wait for their adapter to get a slot on the device
    copies: int = 0  # copies of adapters to the device


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Filled by the memory gauge, in bytes: the device's, with every process on it, or on a CPU this process's."""

    used_bytes: int = 0
    total_bytes: int = 0
    planned_bytes: int = 0  # weights + KV pool + workspace, as planned at start


@dataclass(frozen=True, slots=True)
class TextStats:
    """Filled by the frontend: requests that never reached the core, and those that it stopped.

    `saved_tokens`: what the stopped requests had left of their `max_tokens`, an upper bound of the saving.
    """

    requests_refused: int = 0
    repetitions: int = 0  # requests stopped for repetition
    saved_tokens: int = 0
    error_codes: tuple[str, ...] = ()  # codes of refused and failed requests
    error_counts: tuple[int, ...] = ()  # requests per code, in the same order


@dataclass(frozen=True, slots=True)
class AbandonedStats:
    """Filled by the server: the costs of requests whose client left."""

    kept: int = 0  # records that clients can still ask for
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges of this moment and counters since the start, grouped by the part that fills them."""

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
        """Requests refused by the frontend or by the core."""
        return self.text.requests_refused + self.core.requests_refused
