"""Estimates how long a drain takes, from the engine's seconds per token so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thothy_ai.bench.workload import WorkloadJob
from thothy_ai.engine.api import CoreStats


@dataclass(frozen=True, slots=True)
class TokenLoad:
    """Tokens of a drain. A prompt part that several jobs share counts once among the computed tokens."""

    prompt_tokens: int
    computed_prompt_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, jobs: Sequence[WorkloadJob]) -> TokenLoad:
        """The load of these jobs."""
        parts = {job.parts[: end + 1]: part.tokens for job in jobs for end, part in enumerate(job.parts)}
        return cls(sum(job.prompt_tokens for job in jobs), sum(parts.values()), sum(job.output_tokens for job in jobs))


@dataclass(frozen=True, slots=True)
class Pace:
    """The engine's speed between two readings of its counters."""

    before: CoreStats
    now: CoreStats

    @property
    def tokens(self) -> float:
        """Prompt and output tokens, cached ones included."""
        return self._gained("cached_tokens") + self._gained("prefill_tokens") + self._gained("decode_tokens")

    def remaining_seconds(self, load: TokenLoad) -> float | None:
        """Estimate for the rest of the load; None until both prompt and output tokens were computed."""
        prompt, output = self._gained("prefill_tokens"), self._gained("decode_tokens")
        if not prompt or not output:
            return None
        return self.full_seconds(
            TokenLoad(
                0, max(0, round(load.computed_prompt_tokens - prompt)), max(0, round(load.output_tokens - output))
            )
        )

    def full_seconds(self, load: TokenLoad) -> float:
        """Estimate for the whole load."""
        prefill = self._gained("prefill_seconds") / max(1.0, self._gained("prefill_tokens"))
        decode = self._gained("decode_seconds") / max(1.0, self._gained("decode_tokens"))
        return load.computed_prompt_tokens * prefill + load.output_tokens * decode

    def _gained(self, name: str) -> float:
        return float(getattr(self.now, name) - getattr(self.before, name))
