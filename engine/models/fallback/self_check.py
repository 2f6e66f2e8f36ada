"""Whether a model computes each token from its own sequence alone, seen by running it.

What mixes the tokens of a row in another way than by attention (a convolution, a shift, experts with a capacity), or
takes a token's place in the row for its position, would give wrong results in a step with several sequences: a few
tokens are computed beside different neighbours, at different places of the row, and must come out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thothy_ai.engine.errors import UnsupportedModelError
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.step import StepTokens

if TYPE_CHECKING:
    from thothy_ai.engine.models.fallback.decoder import TransformersDecoder
    from thothy_ai.engine.models.fallback.family import ThroughTransformers

_BLOCK = 16
_OWN, _OTHER = 7, 5  # tokens
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}  # of the states' norm


def require_independent_tokens(
    decoder: TransformersDecoder, family: ThroughTransformers, operations: Operations
) -> None:
    """UnsupportedModelError if tokens depend on those of another sequence, or on their places in a row."""
    vocab = family.config.vocab_size
    own = [(3 + 5 * place) % vocab for place in range(_OWN)]
    one, two = ([(first + 7 * place) % vocab for place in range(_OTHER)] for first in (1, 2))
    before = _states(decoder, family, operations, [own, one])[:_OWN]
    after = _states(decoder, family, operations, [two, own])[_OTHER:]
    difference = float((before - after).norm() / before.norm())
    if not difference <= _TOLERANCE[decoder.table.dtype]:
        raise UnsupportedModelError(
            f"{family.config.model_type}: tokens depend on other sequences of a step (by {difference:.1%})"
        )


@torch.inference_mode()
def _states(
    decoder: TransformersDecoder, family: ThroughTransformers, operations: Operations, sequences: list[list[int]]
) -> Tensor:
    """Final hidden states [T, hidden] float32 of sequences that make up one step."""
    device, dtype, layer = decoder.table.device, decoder.table.dtype, family.layers[0]
    attention = operations.attention(
        AttentionShape(
            max_rows=len(sequences),
            num_heads=layer.num_heads,
            num_kv_heads=layer.num_kv_heads,
            head_dim=family.width,
            block_size=_BLOCK,
            max_context=_BLOCK,
            dtype=dtype,
            kv_dtype=dtype,
            device=device,
        )
    )
    cache = (len(sequences) + 1, _BLOCK, layer.num_kv_heads, family.width)
    caches = [LayerCache(*(torch.zeros(cache, dtype=dtype, device=device) for _ in "kv")) for _ in family.layers]
    attention.plan(_batch([len(each) for each in sequences], device))
    hidden, _ = decoder.body(_tokens(sequences, device), caches, attention, operations)
    return hidden.float()


def _tokens(sequences: list[list[int]], device: torch.device) -> StepTokens:
    """Sequence i lies in block i + 1."""
    columns = [
        (token, place, (index + 1) * _BLOCK + place)
        for index, sequence in enumerate(sequences)
        for place, token in enumerate(sequence)
    ]
    return StepTokens(*torch.tensor(columns, dtype=torch.int64, device=device).unbind(1))


def _batch(counts: list[int], device: torch.device) -> AttentionBatch:
    """Prompts of so many tokens, from their beginnings."""

    def column(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    return AttentionBatch(
        block_tables=torch.arange(1, len(counts) + 1, dtype=torch.int32, device=device)[:, None],
        rows=column(*range(len(counts))),
        context_lens=column(*counts),
        query_starts=column(0, *torch.tensor(counts).cumsum(0).tolist()),
        shared_lens=column(*(0 for _ in counts)),
        group_sizes=column(*(0 for _ in counts)),
        num_decode=0,
        query_lens=tuple(counts),
        kv_lens=tuple(counts),
    )
