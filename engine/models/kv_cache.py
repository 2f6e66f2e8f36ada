"""The paged KV cache: keys and values of each layer. The block pool knows which sequence owns which block."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thothy_ai.engine.models.shape import ModelShape
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import LayerCache

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVCache:
    """`layers[i]`: blocks of [num_blocks, block_size, num_kv_heads, head_dim]; block 0 is the dummy."""

    layers: tuple[LayerCache, ...]

    @classmethod
    def allocate(
        cls, shape: ModelShape, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        """A zeroed cache; OutOfMemoryError of torch when it does not fit."""
        heads = (num_blocks, block_size, shape.num_kv_heads)

        def layer() -> LayerCache:
            keys, values = (torch.zeros(*heads, shape.head_dim, dtype=dtype, device=device) for _ in range(2))
            if dtype != FP8:
                return LayerCache(keys, values)
            return LayerCache(keys, values, *(torch.zeros(heads, device=device) for _ in range(2)))

        return cls(tuple(layer() for _ in range(shape.num_layers)))

    @staticmethod
    def bytes_per_block(shape: ModelShape, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values."""
        head = shape.head_dim * dtype.itemsize + (_SCALE_BYTES if dtype == FP8 else 0)
        return 2 * shape.num_layers * block_size * shape.num_kv_heads * head
