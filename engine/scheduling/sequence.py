"""One request in the core: its tokens, its blocks, and how much of it is computed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thothy_ai.engine.api import INTERACTIVE_PRIORITY, FinishReason, TokenLogprob, Usage
from thothy_ai.engine.api.adapters import NO_SLOT, Adapter
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.scheduling.blocks import NO_BRANCH, Branch, Chain

if TYPE_CHECKING:
    from thothy_ai.engine.grammar.compiler import Grammar

NO_ROW = -1


@dataclass(eq=False, slots=True)
class Sequence:
    """Owned by the scheduler; the core appends tokens and sets why it ends, and nothing else changes it.

    `tokens` are those the host knows; `pending` more were sampled and not read yet, thus `known` counts both.
    `computed` of the known tokens have their KV written by steps launched so far. `in_flight` members of steps that
    were launched and not read stand for it. Of `tokens` and the blocks of each table, the device has the first
    `tokens_sent` (tokens that it sampled itself included) and `blocks_sent`; the frontend has the first `reported`
    tokens, or had them in the prompt. Each group of layers has one of the `tables`, of `num_blocks` blocks, of which
    the first `released` are others' by now: none of its layers reads their tokens any more. `num_held` are all the
    others. A drawn token that is one of `end_tokens` ends it, and is not appended. In a recurrent model it begins with
    the state in slot `restored`, if any, and keeps its states at `borders`, counts of tokens that it has yet to
    compute, ascending. Its `adapter` computes tokens from `adapted_from` on, all others the base model, and has the
    slot `adapter_slot` while the sequence is queued or runs.
    """

    request: CoreRequest
    max_tokens: int
    end_tokens: frozenset[int] = frozenset()
    grammar: Grammar | None = None  # its own, which the core advances
    prompt_tokens: int = field(init=False)
    tokens: list[int] = field(init=False)
    seed: int = field(init=False)
    priority: int = field(init=False)  # the request's, or a higher one so that it does not starve
    reported: int = field(init=False)
    arrival: int = -1  # its number
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
    registered: int = 0  # full blocks that are in the prefix cache
    chain: Chain = ""
    restored: int | None = None
    borders: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    preemptions: int = 0
    displaced: int = 0  # preemptions for a higher priority
    compute_seconds: float = 0.0
    finish_reason: FinishReason | None = None
    error: EngineError | None = None
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)  # by position, of drawn tokens not reported yet
    adapter: Adapter | None = None
    adapted_from: int = 0
    adapter_slot: int = NO_SLOT
    branch: Branch = NO_BRANCH
    broken: bool = False  # one of its scores was not finite, thus its KV may not be either

    def __post_init__(self) -> None:
        """Start from the prompt; a request without a seed gets a random one, and keeps it through preemption."""
        self.prompt_tokens = self.reported = len(self.request.prompt)
        self.tokens = list(self.request.prompt)
        self.seed = secrets.randbits(63) if self.request.sampling.seed is None else self.request.sampling.seed
        self.chain = self.request.salt
        self.priority = self.request.priority

    @property
    def known(self) -> int:
        """Tokens that exist, on the host or still on the device."""
        return len(self.tokens) + self.pending

    @property
    def interactive(self) -> bool:
        """Whether someone waits for its text."""
        return self.request.priority >= INTERACTIVE_PRIORITY

    @property
    def held(self) -> list[int]:
        """The blocks that it has references to, those of the first tokens first."""
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
        """Output tokens that the host knows."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def ending(self) -> bool:
        """It needs no further step: it has finished, or all the tokens that it may have are sampled."""
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
        """`end`, or the next border before it: the tokens that the next step may compute. Those of the base model and
        those of an adapter are in different steps.
        """
        if self.computed < self.adapted_from:
            end = min(end, self.adapted_from)
        return min(end, self.borders[0]) if self.borders else end

    def adapt(self, adapter: Adapter, block_size: int) -> None:
        """Give it an adapter, before it is queued; InvalidRequestError if its prompt does not activate it."""
        self.adapter, self.adapted_from = adapter, adapter.begins(self.request.prompt)
        self.branch = Branch(adapter.digest, self.adapted_from // block_size)

    def finish(self, reason: FinishReason, error: EngineError | None = None) -> None:
        """Set why it ends; the first reason is kept."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error
