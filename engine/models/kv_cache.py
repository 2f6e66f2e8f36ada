"""The device memory of sequences: the paged KV cache of attention layers, and the states of recurrent layers.

The block pool knows which sequence owns which block; a row's state is in the slot of its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from thothy_ai.engine.models.layer_groups import LayerGroups, LayerPlace
from thothy_ai.engine.models.shape import ModelShape
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.states import LayerState

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class KVCache:
    """`layers[i]`: blocks of [num_blocks, block_size, kv_heads, head_dim], of which block 0 is the dummy, or states,
    which are parts of the `stacks` [layers, slots, ...]. Layers may share blocks; those of different groups share
    tensors.
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
        groups: LayerGroups | None = None,
        slots: int = 0,
        state_dtype: torch.dtype = torch.float32,
        inputs_dtype: torch.dtype | None = None,
    ) -> KVCache:
        """A zeroed cache; torch's OutOfMemoryError if it does not fit. Without `groups`, all layers are in one group.
        `inputs_dtype`: the model's type, if KV has another.
        """
        groups = groups or LayerGroups.single(shape.kept)

        def zeros(numbers: int, dtype: torch.dtype | None = None) -> Tensor:
            return torch.zeros(num_blocks, block_size * numbers, dtype=dtype, device=device)

        rooms = groups.rooms()
        pairs = {tensor: [zeros(room.numbers, dtype) for _ in range(room.parts)] for tensor, room in rooms.items()}
        scales = {tensor: (zeros(room.heads), zeros(room.heads)) for tensor, room in rooms.items() if dtype == FP8}

        def paged(place: LayerPlace) -> LayerCache:
            def part(tensor: Tensor, *sizes: int) -> Tensor:
                length = block_size * prod(sizes)
                own = slice(place.part * length, (place.part + 1) * length)
                found: Tensor = tensor[:, own].unflatten(1, (block_size, *sizes))
                return found

            heads = place.heads
            keys, *own = (part(each, heads.number, heads.size) for each in pairs[place.tensor])
            values = own[0] if own else keys[..., : heads.latent]
            if dtype != FP8:
                return LayerCache(keys, values, table=place.table)
            key_scales, value_scales = (part(each, heads.number) for each in scales[place.tensor])
            return LayerCache(keys, values, key_scales, value_scales, place.table)

        stacks: list[Tensor] = []
        layers: dict[int, LayerCache | LayerState] = {
            index: paged(place) for index, place in enumerate(groups.places) if place is not None
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

    @staticmethod
    def bytes_per_block(groups: LayerGroups, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one block of any group, over all its layers."""
        scale = _SCALE_BYTES if dtype == FP8 else 0
        rooms = groups.rooms().values()
        return block_size * sum(room.parts * (room.numbers * dtype.itemsize + room.heads * scale) for room in rooms)

    @staticmethod
    def bytes_per_slot(shape: ModelShape, dtype: torch.dtype, state_dtype: torch.dtype) -> int:
        """Bytes of one slot over all recurrent layers of a model whose type is `dtype`."""
        return sum(
            state.kept * state.channels * dtype.itemsize
            + state.heads * state.values * state.keys * state_dtype.itemsize
            for state in shape.states
            if state is not None
        )
