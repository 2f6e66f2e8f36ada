"""Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024) in its latent form.

A token keeps one rotated key, and one latent from which the keys and values of all heads derive. The projection from
latents to keys is applied to queries instead, and the one from latents to values to the results (absorbed projections).
All heads therefore attend to the latents themselves, as if there were one KV head whose values are part of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.attention import LayerContext
from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.engine.models.layers.norm import RMSNorm
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionParams
from thothy_ai.kernels.rotary import Rotary


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """`compress` computes a token's latent and key and, if there is a `query_norm`, before them the compressed input of
    `queries`, which otherwise take the hidden state.

    `keys` [heads, plain, rank] and `values` [heads, rank, size] are the projections from latents. `interleaved`: rotary
    pairs are adjacent.
    """

    compress: Linear
    query_norm: RMSNorm | None
    queries: Linear
    latent_norm: RMSNorm
    keys: Tensor
    values: Tensor
    output: Linear
    rotary: Rotary
    interleaved: bool
    params: AttentionParams

    @property
    def takes_fp8(self) -> bool:
        """Whether all layers that take the hidden state quantize it."""
        return self.compress.takes_fp8 and (self.query_norm is not None or self.queries.takes_fp8)

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> weighted latents [T, heads * rank]; the tokens' latents and keys are cached."""
        operations, tokens, cache = context.operations, context.tokens, context.cache
        heads, plain, rank = self.keys.shape
        kept = cache.heads.size
        compressed = self.compress(hidden)
        if self.query_norm is None:
            q = self.queries(hidden)
        else:
            normed = self.query_norm(compressed[:, :-kept], operations)
            q = self.queries(prepared(normed, self.queries, operations))
        q = q.unflatten(1, (heads, -1))
        absorbed = q.new_empty(len(q), heads, kept)
        torch.bmm(q[..., :plain].transpose(0, 1), self.keys, out=absorbed[..., :rank].transpose(0, 1))
        operations.rotate_and_cache_latents(
            q,
            compressed[:, -kept:],
            self.latent_norm.weight,
            self.latent_norm.eps,
            self.rotary,
            tokens.positions,
            tokens.slots[cache.table],
            cache,
            absorbed,
            interleaved=self.interleaved,
        )
        return context.attention(absorbed, cache, self.params).flatten(1)

    def project(self, attended: Tensor, operations: Operations) -> Tensor:
        """Weighted latents [R, heads * rank] -> [R, hidden]."""
        heads, rank, size = self.values.shape
        made = attended.new_empty(len(attended), heads, size)
        torch.bmm(attended.unflatten(1, (heads, rank)).transpose(0, 1), self.values, out=made.transpose(0, 1))
        return self.output(prepared(made.flatten(1), self.output, operations))
