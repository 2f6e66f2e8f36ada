"""An engine's statistics, grouped by what fills them; part of `engine/api.py`, which has their names."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
    busy_seconds: float = 0.0  # in steps; a GPU's launch gaps within a step count
    prefill_seconds: float = 0.0  # parts of busy_seconds
    decode_seconds: float = 0.0
    mask_seconds: float = 0.0  # of the core's thread: preparing grammar masks, and waiting for those that fill them
    wait_seconds: float = 0.0  # of the host, in waiting for the device; none on a CPU
    replayed_steps: int = 0  # whose forward pass was replayed from a CUDA graph
    attributed_seconds: float = 0.0  # handed to requests so far; equals busy_seconds when idle

    def plus(self, **gained: float) -> CoreStats:
        """These counters, and what some of them gained."""
        return replace(self, **{name: getattr(self, name) + amount for name, amount in gained.items()})


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Filled by the memory gauge, in bytes: of the device (every process on it counts), or of this process on a CPU."""

    used_bytes: int = 0
    total_bytes: int = 0
    planned_bytes: int = 0  # weights + KV pool + workspace, as planned at start


@dataclass(frozen=True, slots=True)
class TextStats:
    """Filled by the text edge: requests that never reached the core, and those that it stopped.

    `saved_tokens`: what the stopped ones left of their `max_tokens`. They might have ended by themselves before.
    """

    requests_refused: int = 0
    repetitions: int = 0  # requests that were stopped since they repeated themselves
    saved_tokens: int = 0


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

    @property
    def requests_refused(self) -> int:
        """By the text edge or by the core."""
        return self.text.requests_refused + self.core.requests_refused
