"""One request on its way through the core: its tokens, its blocks, and how far it has come."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.errors import EngineError
from thothy_ai.engine.scheduling.blocks import Chain

NO_ROW = -1


@dataclass(eq=False, slots=True)
class Sequence:
    """Owned by the scheduler; the core appends tokens to it, and nobody else changes it.

    `tokens` are those the host knows; `pending` more were sampled and not read yet, so `known` counts both.
    `computed` of the known tokens have their KV written by steps launched so far. `in_flight` steps have been launched
    with this sequence and not been read.
    """

    request: CoreRequest
    max_tokens: int
    prompt_tokens: int = field(init=False)
    tokens: list[int] = field(init=False)
    seed: int = field(init=False)
    computed: int = 0
    pending: int = 0
    in_flight: int = 0
    row: int = NO_ROW
    blocks: list[int] = field(default_factory=list)
    registered: int = 0  # full blocks that are in the prefix cache
    chain: Chain = ""
    cached_tokens: int = 0
    preemptions: int = 0
    compute_seconds: float = 0.0
    finish_reason: FinishReason | None = None
    error: EngineError | None = None
    broken: bool = False  # a score of it was not finite, so what its blocks hold may not be either

    def __post_init__(self) -> None:
        """Start from the prompt; a request without a seed draws one, and keeps it through preemption."""
        self.prompt_tokens = len(self.request.prompt)
        self.tokens = list(self.request.prompt)
        self.seed = secrets.randbits(63) if self.request.sampling.seed is None else self.request.sampling.seed
        self.chain = self.request.salt

    @property
    def known(self) -> int:
        """Tokens that exist, on the host or still on the device."""
        return len(self.tokens) + self.pending

    @property
    def output_tokens(self) -> int:
        """Output tokens the host knows."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def ending(self) -> bool:
        """No further step is wanted: it has finished, or the tokens it may have are all sampled."""
        return self.finish_reason is not None or self.known - self.prompt_tokens >= self.max_tokens

    def finish(self, reason: FinishReason, error: EngineError | None = None) -> None:
        """Set why it ends; the first reason stays."""
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error
