"""Divides each step's measured seconds over its members, so that the shares add up to the device's busy time.

A member's weight is what it costs by count: floating-point operations of its tokens through the GEMMs, of the output
head where it samples, of attention; and bytes of KV read. Only the ratio of the device's two rates matters.
A shared prefix is computed by one member and charged to it alone; what reading it costs is divided over its readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.scheduling.prefix_groups import Group
from thothy_ai.engine.scheduling.scheduler import Scheduled

_CPU_RATES = (1.0e11, 1.0e10)  # FLOP/s, byte/s
_GPU_RATES = (7.0e14, 4.3e12)  # measured on an H200: bf16 GEMMs, device copy


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds by count, before measurement scales them."""

    token: float
    sample: float
    attended: float  # per (query, key) pair
    read: float  # per token of KV read

    @classmethod
    def of(cls, config: ModelConfig, *, kv_bytes: int, on_gpu: bool) -> StepCost:
        """Costs of a model whose KV takes `kv_bytes` a token over all layers."""
        flops, bandwidth = _GPU_RATES if on_gpu else _CPU_RATES
        heads = config.num_heads * config.head_dim
        projections = config.hidden_size * (2 * heads + 2 * config.num_kv_heads * config.head_dim)
        layer = projections + 3 * config.hidden_size * config.intermediate_size
        return cls(
            token=2 * config.num_layers * layer / flops,
            sample=2 * config.hidden_size * config.vocab_size / flops,
            attended=4 * config.num_layers * heads / flops,
            read=kv_bytes / bandwidth,
        )

    def weigh(self, member: Scheduled, spared: float = 0.0) -> float:
        """What the member costs in a step, `spared` tokens of whose KV others pay for; always positive."""
        context = member.start + member.count
        pairs = member.count * (context - (member.count - 1) / 2)
        read = (context - spared) * self.read
        return member.count * self.token + member.samples * self.sample + pairs * self.attended + read


@dataclass(frozen=True, slots=True)
class Shares:
    """A step's seconds by member (plan order), and by phase."""

    members: tuple[float, ...]
    prefill: float
    decode: float


def divide(seconds: float, members: Seq[Scheduled], cost: StepCost, groups: Iterable[Group] = ()) -> Shares:
    """Split `seconds` over `members` by weight; a member is in prefill until its prompt is computed.

    What a group reads once is charged in equal parts to its members.
    """
    spared = [0.0] * len(members)
    for first, size, shared in groups:
        spared[first : first + size] = [shared - shared / size] * size
    weights = [cost.weigh(member, tokens) for member, tokens in zip(members, spared, strict=True)]
    scale = seconds / math.fsum(weights)
    shares = tuple(weight * scale for weight in weights)
    prefill = math.fsum(
        share for share, member in zip(shares, members, strict=True) if member.start < member.sequence.prompt_tokens
    )
    return Shares(shares, prefill, seconds - prefill)
