"""FlexAttention's functions of scores and masks, by places in the cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remembered
from typing import NamedTuple, Self

import torch
from torch import Tensor

from thothy_ai.kernels.flex.tiles import SeenKeys, Tiles
from thothy_ai.kernels.paged import AttentionParams

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class KeyPlaces(NamedTuple):
    """What scores depend on beside queries and keys: see `Tiles` and `SeenKeys`. `slopes` [heads] and `cap` [] are
    those of the parameters, on the device: with `dynamic`, torch takes a float that a function captures for a tensor on
    the CPU, which its kernel cannot read.
    """

    positions: Tensor
    members: Tensor
    tables: Tensor
    places: Tensor
    slopes: Tensor | None
    cap: Tensor | None

    @classmethod
    def of(cls, tiles: Tiles, seen: SeenKeys, params: AttentionParams) -> Self:
        """Those of one kind of layer."""
        device = tiles.positions.device
        slopes = None if params.slopes is None else _constant(params.slopes, device)
        cap = None if params.soft_cap is None else _constant(params.soft_cap, device)
        return cls(tiles.positions, tiles.members, seen.tables, seen.places, slopes, cap)


class Layer(NamedTuple):
    """Constants of a compiled kernel. `stride`: the distance from one block to the next, in blocks."""

    params: AttentionParams
    scale: float
    kv_heads: int
    heads: int  # of queries, for each of keys
    height: int
    block_size: int
    stride: int
    head_bytes: int


def mods(layer: Layer, places: KeyPlaces) -> tuple[ScoreMod, MaskMod]:
    """The functions of a score and of a mask that flex_attention takes, of the pool's tokens as keys."""
    params, size = layer.params, layer.block_size
    positions, members, tables, of_blocks, slopes, cap = places

    def key_position(key: Tensor) -> Tensor:
        return of_blocks[key // size // layer.stride] * size + key % size

    def score(score: Tensor, batch: Tensor, head: Tensor, line: Tensor, key: Tensor) -> Tensor:
        del batch
        if cap is not None:
            score = torch.tanh(score / cap) * cap
        if slopes is not None:
            score = score + slopes[head * layer.heads + members[line]] * (key_position(key) - positions[line])
        return score

    def mask(batch: Tensor, head: Tensor, line: Tensor, key: Tensor) -> Tensor:
        del batch, head
        block = key // size // layer.stride
        own = tables[line // layer.height, of_blocks[block]] == block
        query, position = positions[line], key_position(key)
        seen = own & (position <= query)
        if params.window is not None:
            seen = seen & (position >= params.first_seen(query))
        return seen

    return score, mask


@remembered
def _constant(value: float | tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.float32, device=device)
