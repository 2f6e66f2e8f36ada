"""Decides each step: which sequences run, and how many of their tokens.

One rule (vLLM V1's): every sequence's `computed` tokens catch up with its `known` tokens under one token budget.
Prefill, chunked prefill, decode, forced tokens and recomputation after preemption are all that rule.

Owns the waiting and the running sequences, their blocks and their rows. Works on counts, never on token values that
the device has not handed over yet, so that a step can be planned before the one ahead of it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.blocks import BlockPool
from thothy_ai.engine.scheduling.prefix_groups import Group, PrefixGroups
from thothy_ai.engine.scheduling.sequence import NO_ROW, Sequence
from thothy_ai.engine.scheduling.waiting import WaitingLine


@dataclass(slots=True, eq=False)
class Scheduled:
    """A member of a step: compute tokens `start` to `start + count`, then sample if that reaches its last token."""

    sequence: Sequence
    row: int
    start: int
    count: int
    samples: bool

    @property
    def end(self) -> int:
        """Position after the last computed token: where a sampled one goes."""
        return self.start + self.count


class Facts(NamedTuple):
    """Members of a step in columns of [N] int32."""

    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    counts: NDArray[np.int32]
    samples: NDArray[np.int32]
    prompts: NDArray[np.int32]  # tokens of the whole prompt


@dataclass(frozen=True, eq=False)
class StepPlan:
    """One step. Members with a single token come first. `admitted` got their rows in this step.

    `groups` are runs of single-token members that share KV at their front.
    """

    members: tuple[Scheduled, ...]
    admitted: tuple[Sequence, ...]
    groups: tuple[Group, ...] = ()

    @cached_property
    def facts(self) -> Facts:
        """The members' facts, for work on all of them at once."""
        facts = [(m.row, m.start, m.count, m.samples, m.sequence.prompt_tokens) for m in self.members]
        return Facts(*np.array(facts, np.int32).reshape(-1, len(Facts._fields)).T)

    @cached_property
    def tokens(self) -> int:
        """Tokens the step computes."""
        return int(self.facts.counts.sum())


class Scheduler:
    """Admits as the waiting line says; the youngest is preempted first."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._pool = BlockPool(config.num_blocks, config.block_size, share_prefixes=config.prefix_cache)
        self._lengths = LengthEstimator()
        self._waiting = WaitingLine(self._lengths, most_overtaking=config.max_rows)
        self._running: list[Sequence] = []  # oldest first
        self._rows = list(reversed(range(config.max_rows)))
        self._groups = PrefixGroups(config.group_rows, config.block_size)
        self._refused = False  # the first in line, and nothing was given back since
        self.preemptions = 0

    @property
    def pool(self) -> BlockPool:
        """For reading; the scheduler alone changes it."""
        return self._pool

    @property
    def waiting(self) -> int:
        """Sequences not running yet, or not any more."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Sequences that hold a row."""
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; that it can ever fit was checked at submit."""
        self._waiting.add(sequence)

    def schedule(self) -> StepPlan | None:
        """The next step, or None when nothing can run now."""
        budget = self._config.token_budget
        members: list[Scheduled] = []
        for sequence in tuple(self._running):
            if budget and sequence.row != NO_ROW and (member := self._advance(sequence, budget)):
                members.append(member)
                budget -= member.count
        admitted = self._admit(budget, members)
        if not members:
            return None
        decodes, groups = self._groups.arrange({m.sequence: m for m in members if m.count == 1})
        return StepPlan((*decodes, *(m for m in members if m.count > 1)), tuple(admitted), tuple(groups))

    def retire(self, sequence: Sequence) -> None:
        """Forget a finished sequence that no launched step refers to."""
        if sequence.row == NO_ROW:
            self._waiting.remove(sequence)
            self._refused = False
        else:
            if sequence.broken:  # even in blocks before the broken token: a masked key times NaN is NaN
                self._pool.forget(sequence.blocks)
            self._running.remove(sequence)
            self._vacate(sequence)
        if sequence.finish_reason is not FinishReason.ABORTED:
            self._lengths.observe(sequence.request.profile, sequence.output_tokens)

    def check(self) -> None:
        """Raise RuntimeError unless the blocks in use are exactly those that running sequences hold."""
        held = len({block for sequence in self._running for block in sequence.blocks})
        self._pool.check(held=held)

    def _advance(self, sequence: Sequence, budget: int) -> Scheduled | None:
        """Plan the sequence's next tokens, preempting the youngest (itself at last) while blocks are lacking.

        Sequences are planned oldest first, so a victim is never a member of this step already.
        """
        count = min(sequence.known - sequence.computed, budget)
        if sequence.ending or count <= 0:
            return None
        end = sequence.computed + count
        while end > len(sequence.blocks) * self._config.block_size and not self._grow(sequence, end):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return None
        return self._take(sequence, count)

    def _admit(self, budget: int, members: list[Scheduled]) -> list[Sequence]:
        admitted: list[Sequence] = []
        growth: int | None = None
        while budget and self._rows and self._waiting and not self._refused:
            sequence = self._waiting.first()
            if sequence.pending or sequence.ending:
                break
            growth = self._expected_growth() if growth is None else growth
            if not self._start(sequence, budget, growth):
                self._refused = True
                break
            growth += self._expected_blocks(sequence) - len(sequence.blocks)
            self._waiting.remove(sequence)
            self._running.append(sequence)
            count = min(sequence.known - sequence.computed, budget)
            members.append(self._take(sequence, count))
            budget -= count
            admitted.append(sequence)
        return admitted

    def _start(self, sequence: Sequence, budget: int, growth: int) -> bool:
        """Give a waiting sequence its cached prefix, its first blocks and a row, if admission allows.

        `growth`: blocks that the running sequences are expected to take yet.
        """
        prefix = self._pool.find(sequence.tokens, sequence.request.salt, limit=sequence.known - 1)
        self._pool.retain(prefix.blocks)
        cached = len(prefix.blocks) * self._config.block_size
        target = cached + min(sequence.known - cached, budget)
        first = self._pool.blocks_for(target) - len(prefix.blocks)
        reserve = growth + self._expected_blocks(sequence) - len(prefix.blocks) if self._running else first
        if max(first, reserve) > self._pool.available:
            self._pool.release(prefix.blocks)
            return False
        sequence.blocks = [*prefix.blocks, *self._pool.allocate(first)]
        sequence.computed, sequence.registered, sequence.chain = cached, len(prefix.blocks), prefix.chain
        if not sequence.preemptions:
            sequence.cached_tokens = min(cached, sequence.prompt_tokens)  # forced tokens may be cached too
        sequence.row = self._rows.pop()
        return True

    def _expected_growth(self) -> int:
        """Blocks that all running sequences are expected to take yet."""
        return sum(self._expected_blocks(sequence) - len(sequence.blocks) for sequence in self._running)

    def _expected_blocks(self, sequence: Sequence) -> int:
        """Blocks a sequence is expected to hold at its end; at least what it has, plus one to go on."""
        output = self._lengths.expect(sequence.request.profile, sequence.max_tokens)
        length = max(sequence.prompt_tokens + output, min(sequence.known + 1, self._config.longest_sequence))
        return max(self._pool.blocks_for(length), len(sequence.blocks))

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        missing = self._pool.blocks_for(tokens) - len(sequence.blocks)
        if missing > self._pool.available:
            return False
        sequence.blocks += self._pool.allocate(missing)
        return True

    def _take(self, sequence: Sequence, count: int) -> Scheduled:
        """Move the sequence's counts on as if the step were done: later plans build on it."""
        start = sequence.computed
        end = sequence.computed = start + count
        samples = end == sequence.known
        sequence.pending += samples
        sequence.in_flight += 1
        if end >= (sequence.registered + 1) * self._config.block_size:
            self._register_full_blocks(sequence)
        if count == 1 and start >= sequence.prompt_tokens:
            self._groups.join(sequence)
        return Scheduled(sequence, sequence.row, start, count, samples)

    def _register_full_blocks(self, sequence: Sequence) -> None:
        """Make full blocks findable as they are allocated: each layer writes its KV before any sequence reads it."""
        size = self._config.block_size
        for index in range(sequence.registered, min(sequence.computed, len(sequence.tokens)) // size):
            tokens = sequence.tokens[index * size : (index + 1) * size]
            sequence.chain = self._pool.register(sequence.blocks[index], sequence.chain, tokens)
            sequence.registered += 1

    def _preempt(self, sequence: Sequence) -> None:
        """Take a running sequence's blocks; it waits first in line and computes its tokens again."""
        self._running.remove(sequence)
        self._vacate(sequence)
        sequence.computed, sequence.registered = 0, 0
        sequence.preemptions += 1
        self.preemptions += 1
        self._waiting.put_first(sequence)

    def _vacate(self, sequence: Sequence) -> None:
        self._refused = False
        self._groups.leave(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        self._rows.append(sequence.row)
        sequence.row = NO_ROW
