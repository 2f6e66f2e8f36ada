"""The paged KV cache: a key and a value tensor for each layer. Who owns which block is the block pool's affair."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class KVCache:
    """`keys[layer]`, `values[layer]`: [num_blocks, block_size, num_kv_heads, head_dim]; block 0 is the dummy."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def allocate(
        cls, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        """A zeroed cache; OutOfMemoryError of torch when it does not fit."""
        shape = (num_blocks, block_size, config.num_kv_heads, config.head_dim)
        keys, values = (
            tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_layers)) for _ in range(2)
        )
        return cls(keys, values)

    @staticmethod
    def bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, keys and values."""
        return 2 * config.num_layers * block_size * config.num_kv_heads * config.head_dim * dtype.itemsize
