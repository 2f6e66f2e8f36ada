"""What sequences leave on the device: the paged KV cache of layers that attend, and the states of recurrent ones.

The block pool knows which sequence owns which block; a row's state is in the slot of its number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.models.shape import ModelShape
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import KVHeads, LayerCache
from thothy_ai.kernels.states import LayerState

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVCache:
    """`layers[i]`: blocks of [num_blocks, block_size, kv_heads, head_dim], of which block 0 is the dummy, or states,
    which are parts of the `stacks` [layers, slots, ...]. Layers may share blocks.
    """

    layers: tuple[LayerCache | LayerState, ...]
    stacks: tuple[Tensor, ...] = ()

    @classmethod
    def allocate(
        cls,
        shape: ModelShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        slots: int = 0,
        state_dtype: torch.dtype = torch.float32,
        inputs_dtype: torch.dtype | None = None,
    ) -> KVCache:
        """A zeroed cache; OutOfMemoryError of torch when it does not fit. `inputs_dtype`: the model's, if KV has
        another one.
        """

        def paged(kept: KVHeads) -> LayerCache:
            heads = (num_blocks, block_size, kept.number)
            keys, values = (torch.zeros(*heads, kept.size, dtype=dtype, device=device) for _ in range(2))
            if dtype != FP8:
                return LayerCache(keys, values)
            return LayerCache(keys, values, *(torch.zeros(heads, device=device) for _ in range(2)))

        stacks: list[Tensor] = []
        layers: dict[int, LayerCache | LayerState] = {
            index: paged(heads) for index, heads in enumerate(shape.kept) if heads is not None
        }
        for state in dict.fromkeys(filter(None, shape.states)):
            indices = [index for index, each in enumerate(shape.states) if each == state]
            inputs = torch.zeros(
                len(indices), slots, state.kept, state.channels, dtype=inputs_dtype or dtype, device=device
            )
            matrices = (len(indices), slots, state.heads, state.values, state.keys)
            memory = torch.zeros(matrices, dtype=state_dtype, device=device) if state.heads else None
            stacks += [inputs] if memory is None else [inputs, memory]
            for place, index in enumerate(indices):
                layers[index] = LayerState(inputs[place], None if memory is None else memory[place])
        sources = shape.kv_sources or range(shape.num_layers)
        return cls(tuple(layers[source] for source in sources), tuple(stacks))

    def copy_states(self, sources: Tensor, targets: Tensor) -> None:
        """Copy the states of slots `sources` [N] to `targets` [N] int64, in all layers; a source may be a target, and
        is read before it is overwritten.
        """
        for stack in self.stacks:
            stack.index_copy_(1, targets, stack.index_select(1, sources))

    @staticmethod
    def bytes_per_block(shape: ModelShape, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers that keep keys and values."""
        scale = _SCALE_BYTES if dtype == FP8 else 0
        kept = (heads.number * (heads.size * dtype.itemsize + scale) for heads in shape.kept if heads is not None)
        return 2 * block_size * sum(kept)

    @staticmethod
    def bytes_per_slot(shape: ModelShape, dtype: torch.dtype, state_dtype: torch.dtype) -> int:
        """Bytes of one slot over all recurrent layers of a model whose type is `dtype`."""
        return sum(
            state.kept * state.channels * dtype.itemsize
            + state.heads * state.values * state.keys * state_dtype.itemsize
            for state in shape.states
            if state is not None
        )
