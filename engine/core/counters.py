"""The core's running totals. One owner, the core's thread; others read frozen snapshots."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from thothy_ai.engine.core.accounting import Shares
from thothy_ai.engine.scheduling.scheduler import StepPlan
from thothy_ai.engine.scheduling.sequence import Sequence


@dataclass(slots=True)
class Counters:
    """Since the start; names as in `EngineStats`."""

    steps: int = 0
    batch_size: int = 0
    requests_finished: int = 0
    requests_aborted: int = 0
    requests_refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    output_tokens: int = 0
    busy_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    attributed_seconds: float = 0.0

    def count_admitted(self, admitted: Seq[Sequence]) -> None:
        """Add prompts that start to run, and what the prefix cache spared of them; resumed ones were counted before."""
        for sequence in admitted:
            if not sequence.preemptions:
                self.prompt_tokens += sequence.prompt_tokens
                self.cached_tokens += sequence.cached_tokens

    def count_step(self, plan: StepPlan, seconds: float, shares: Shares) -> None:
        """Add a step that was read."""
        facts = plan.facts
        prefill = int(facts.counts[facts.starts < facts.prompts].sum())
        self.steps += 1
        self.batch_size = len(plan.members)
        self.prefill_tokens += prefill
        self.decode_tokens += plan.tokens - prefill
        self.busy_seconds += seconds
        self.prefill_seconds += shares.prefill
        self.decode_seconds += shares.decode
