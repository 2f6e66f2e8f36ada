"""A stand-in for a decoder whose KV cache holds token ids, so that a wrong block, slot or order changes the output.

The next token is a fixed function of all tokens before it, as read back through the block table. What the whole engine
must produce is then a loop of three lines, with no tolerance and no ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape
from thothy_ai.kernels.reference.attention import PagedAttention
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.step import StepTokens

VOCAB = 50
SHAPE = AttentionShape(1, 1, 1, 1, 1, 1, torch.float32, torch.float32, torch.device("cpu"))  # of no consequence
CPU = torch.device("cpu")


def next_token(tokens: list[int]) -> int:
    """Depends on every token and on its place; never 0, so that tests can use 0 as end-of-text."""
    total = 7
    for token in tokens:
        total = (total * 31 + token + 1) % 1_000_003
    return 1 + total % (VOCAB - 1)


def continuation(prompt: list[int], count: int) -> list[int]:
    """The `count` tokens that follow `prompt`."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@dataclass
class TokenCache:
    """[num_blocks * block_size] token ids; -1 where nothing was written."""

    slots: Tensor
    block_size: int


@dataclass
class _Shape:
    vocab_size: int = VOCAB


class ArithmeticModel:
    """Has the forward and the logits of a real model, over a TokenCache."""

    config = _Shape()
    operations = ReferenceOperations()
    captures = True
    captures_between_attention = True

    def forward(
        self,
        tokens: StepTokens,
        batch: AttentionBatch,
        cache: TokenCache,
        attention: PagedAttention,
        wanted: Tensor,
    ) -> Tensor:
        cache.slots[tokens.slots[0]] = tokens.ids
        hidden: list[int] = []
        for index, (count, length) in enumerate(zip(batch.query_lens, batch.kv_lens, strict=True)):
            table = batch.block_tables[0][int(batch.rows[index])].tolist()
            size = cache.block_size
            known = [int(cache.slots[table[i // size] * size + i % size]) for i in range(length)]
            assert -1 not in known, "a slot was read that nothing wrote"
            hidden += [next_token(known[: length - count + i + 1]) for i in range(count)]
        return torch.tensor(hidden)[wanted]

    def logits(self, hidden: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(hidden, VOCAB).to(torch.float32)


def arithmetic_core(
    config: EngineConfig,
    on_events: OnEvents,
    *,
    eos: frozenset[int] = frozenset(),
    grammars: GrammarCompiler | None = None,
) -> EngineCore:
    """A real core around the stand-in; not started."""
    cache = TokenCache(torch.full((config.num_blocks * config.block_size,), -1), config.block_size)
    return EngineCore(
        Runner(ArithmeticModel(), cache, PagedAttention(SHAPE), config, CPU),
        config,
        _info(config),
        StepCost(token=1.0, sample=1.0, attended=0.1, read=0.01),
        MemoryGauge(CPU, 0),
        vocab_size=VOCAB,
        eos=eos,
        on_events=on_events,
        grammars=grammars,
    )


def _info(config: EngineConfig) -> EngineInfo:
    size, blocks, longest = config.block_size, config.num_blocks, config.max_sequence_tokens
    return EngineInfo("session", "arithmetic", "cpu", "int64", size, blocks, longest, 0.0)
