"""One generation in the core: its tokens, its blocks, and how much of it is computed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thothy_ai.engine.api import INTERACTIVE_PRIORITY, FinishReason, TokenLogprob, Usage
from thothy_ai.engine.api.adapters import NO_SLOT, Adapter
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.scheduling.blocks import NO_BRANCH, Branch, Chain
from thothy_ai.engine.scheduling.kv_budget import KVBudget

if TYPE_CHECKING:
    from thothy_ai.engine.grammar.compiler import Grammar

NO_ROW = -1


@dataclass(eq=False, slots=True)
class Sequence:
    """Owned by the scheduler. The core appends tokens and sets why the sequence ends; nothing else changes it.

    Tokens: the host knows `tokens`; `pending` more were sampled but not read yet, and `known` counts both. Launched
    steps write the KV of the first `computed` known tokens. `in_flight` counts the sequence's members in launched,
    unread steps. The device has the first `tokens_sent` tokens (including those that it sampled) and the first
    `blocks_sent` blocks of each table; the frontend has the first `reported` tokens, prompt included. Drawing one of
    the `end_tokens` ends the sequence; it is not appended.

    Blocks: each group of layers has one of the `tables`, with `num_blocks` blocks. The group's layers no longer read
    the first `released` of them, which can belong to others by now; the sequence holds the other `num_held`.

    States: in a recurrent model the sequence begins with the state in slot `restored`, if any, and keeps its state at
    each of the `borders`, which are ascending numbers of prompt tokens that it has not reached yet.

    Budget: a sequence with a `budget` drops blocks, which held `dropped` tokens so far. The place of a token in the
    tables is its position less these.

    Adapter: the `adapter` computes tokens from `adapted_from` on, and the base model those before. It has the slot
    `adapter_slot` while the sequence is queued or runs.
    """

    request: CoreRequest
    max_tokens: int
    end_tokens: frozenset[int] = frozenset()
    grammar: Grammar | None = None  # not shared; the core advances it
    prompt_tokens: int = field(init=False)
    tokens: list[int] = field(init=False)
    seed: int = field(init=False)
    priority: int = field(init=False)  # the request's, or a raised one against starvation
    reported: int = field(init=False)
    arrival: int = -1  # its number, ascending in order of arrival
    computed: int = 0
    pending: int = 0
    in_flight: int = 0
    row: int = NO_ROW
    tables: list[list[int]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    num_blocks: int = 0
    num_held: int = 0
    tokens_sent: int = 0
    blocks_sent: int = 0
    registered: int = 0  # full blocks in the prefix cache
    chain: Chain = ""
    budget: KVBudget | None = None
    dropped: int = 0
    restored: int | None = None
    borders: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    preemptions: int = 0
    displaced: int = 0  # preemptions for a higher priority
    compute_seconds: float = 0.0
    finish_reason: FinishReason | None = None
    error: EngineError | None = None
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)  # of unreported drawn tokens, by position
    adapter: Adapter | None = None
    adapted_from: int = 0
    adapter_slot: int = NO_SLOT
    branch: Branch = NO_BRANCH
    broken: bool = False  # a score was not finite, so its KV may not be either

    def __post_init__(self) -> None:
        """Start from the prompt. A request without a seed gets a random one, which it keeps through preemption."""
        self.prompt_tokens = self.reported = len(self.request.prompt)
        self.tokens = list(self.request.prompt)
        self.seed = secrets.randbits(63) if self.request.sampling.seed is None else self.request.sampling.seed
        self.chain = self.request.salt
        self.priority = self.request.priority

    @property
    def known(self) -> int:
        """Number of tokens, on the host or still on the device only."""
        return len(self.tokens) + self.pending

    @property
    def interactive(self) -> bool:
        """Whether someone waits for its text."""
        return self.request.priority >= INTERACTIVE_PRIORITY

    @property
    def held(self) -> list[int]:
        """The blocks that it has references to, in the order of their tokens."""
        if len(self.tables) == 1:
            return self.tables[0][self.released[0] :]
        places = enumerate(zip(*self.tables, strict=True))
        return [
            block
            for place, blocks in places
            for block, first in zip(blocks, self.released, strict=True)
            if place >= first
        ]

    @property
    def output_tokens(self) -> int:
        """Number of output tokens that the host knows."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def ending(self) -> bool:
        """Whether it needs no further step: it has finished, or its last permitted token is sampled."""
        return self.finish_reason is not None or self.known - self.prompt_tokens >= self.max_tokens

    @property
    def usage(self) -> Usage:
        return Usage(
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.compute_seconds,
            self.preemptions,
            adapters=() if self.adapter is None else (self.adapter.digest,),
        )

    def until(self, end: int) -> int:
        """Where the next step must stop computing: at `end` or before. Tokens of the base model and of an adapter are
        in different steps. A single token next to a border gets a step of its own, since single-token members are
        computed before longer ones.
        """
        if self.budget is not None:
            end = min(end, self.budget.border_after(self.computed))
        if self.computed < self.adapted_from:
            end = min(end, self.adapted_from)
        start = self.computed
        for border in self.borders:
            if border >= end:
                break
            if border - start == 1:
                return border if start == self.computed else start
            if end - border == 1:
                return border
            start = border
        return end

    def adapt(self, adapter: Adapter, block_size: int) -> None:
        """Set the adapter, before the sequence is queued; InvalidRequestError if the prompt does not activate it."""
        self.adapter, self.adapted_from = adapter, adapter.begins(self.request.prompt)
        self.branch = Branch(adapter.digest, self.adapted_from // block_size)

    def finish(self, reason: FinishReason, error: EngineError | None = None) -> None:
        """Set why the sequence ends; the first reason is kept."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error
