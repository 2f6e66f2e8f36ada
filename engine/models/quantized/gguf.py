"""GGUF's blocks, kept as they are in the file (`ggml-common.h` and `ggml-quants.c` of llama.cpp define them).

A converted file has them under names of its own, and `quantization_config` says which layers have which type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.quantized.grouped import GroupedWeight
from thothy_ai.engine.models.quantized.quantization import LayerRule, Quantization, strings
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import TensorSource
from thothy_ai.kernels.reference.grouped import packed

METHOD = "gguf"
MXFP4 = "MXFP4"  # the type of experts that stay in it
ENDING = ".blocks"  # in the place of ".weight": [rows, bytes of a row] uint8


class Contents(NamedTuple):
    """What blocks [N, B, bytes] hold: numbers [N, K] uint8, scales and perhaps offsets [N, G] float32."""

    numbers: Tensor
    scales: Tensor
    offsets: Tensor | None = None


class BlockFormat(NamedTuple):
    """A type of tensor: what a block holds, and how `GroupedInts` hold it.

    Numbers of five and six bits take eight. Scales and offsets take 16 bits each, as in the file. K-quants have a small
    factor for each group instead, which is multiplied out.
    """

    values: int
    num_bytes: int
    bits: int
    group: int
    contents: Callable[[Tensor], Contents]


@dataclass(frozen=True, slots=True)
class GGUFBlocks:
    """`blocks` [N, K / values * num_bytes] uint8."""

    form: BlockFormat

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedWeight:
        """The weight. ValueError for scales that are not finite in float16."""
        form = self.form
        if inputs % form.values:
            raise ValueError(f"{name}: {inputs} inputs do not fill blocks of {form.values}")
        blocks = inputs // form.values
        stored = source.stored(name + ENDING, rows, blocks * form.num_bytes, dtype=torch.uint8)
        contents = form.contents(stored.view(rows, blocks, form.num_bytes))
        scales, offsets = _halves(name, contents.scales), contents.offsets
        offsets = None if offsets is None else _halves(name, offsets)
        return GroupedWeight(packed(contents.numbers, scales, None, form.bits, form.group, offsets=offsets))

    def dense(self, source: TensorSource, name: str, rows: int, inputs: int) -> Tensor:
        return self.read(source, name, rows, inputs).dense(source.dtype)


def gguf(settings: MethodSettings) -> Quantization:
    """`quant_method` "gguf", written by this engine: `types` has the names of layers by their type.

    `experts` is that of all experts, if they stay quantized.
    """
    types = settings.get("types")
    if not isinstance(types, Mapping):
        raise ModelLoadError(f"{settings.method}: types is {types!r}")
    settings.require("experts", None, MXFP4)
    rules = []
    for kind, names in types.items():
        if kind not in BLOCK_FORMATS:
            raise UnsupportedModelError(f"{settings.method}: type {kind!r} is not implemented")
        pattern = f"(?:{'|'.join(map(re.escape, strings(names)))})$"
        rules.append(LayerRule(pattern, GGUFBlocks(BLOCK_FORMATS[kind])))
    return Quantization(METHOD, tuple(rules), mxfp4_experts=settings.get("experts") == MXFP4)


def _halves(name: str, values: Tensor) -> Tensor:
    """[N, G] -> [G, N] float16."""
    halves = values.t().to(torch.float16)
    if not halves.is_meta and not bool(halves.isfinite().all()):
        raise ValueError(f"{name}: scales are NaN, infinite or too large for float16")
    return halves


def _of_32(blocks: Tensor, *, five_bits: bool, offsets: bool) -> Contents:
    """A scale and perhaps an offset, then perhaps the fifth bits of 32 numbers, then their lower four."""
    begin = 4 if offsets else 2
    numbers = _nibbles(blocks[..., begin + 4 * five_bits :]).flatten(2)
    if five_bits:
        bits = blocks[..., begin : begin + 4].unsqueeze(3)
        numbers = numbers + (_fields(bits, (0, 1, 2, 3, 4, 5, 6, 7), 1, axis=3).flatten(2) << 4)
        numbers = numbers if offsets else numbers + (128 - 16)
    return Contents(numbers.flatten(1), _half(blocks, 0), _half(blocks, 2) if offsets else None)


def _q4_k(blocks: Tensor) -> Contents:
    numbers = _nibbles(blocks[..., 16:].unflatten(2, (4, 32)))
    return Contents(numbers.flatten(1), *_k_factors(blocks))


def _q5_k(blocks: Tensor) -> Contents:
    low = _nibbles(blocks[..., 48:].unflatten(2, (4, 32))).flatten(2, 3)
    high = _fields(blocks[..., 16:48].unsqueeze(2), (0, 1, 2, 3, 4, 5, 6, 7), 1, axis=2)
    return Contents((low | (high << 4)).flatten(1), *_k_factors(blocks))


def _q6_k(blocks: Tensor) -> Contents:
    low = _nibbles(blocks[..., :128].unflatten(2, (2, 64))).flatten(3).unflatten(3, (4, 32))
    high = _fields(blocks[..., 128:192].unflatten(2, (2, 1, 32)), (0, 2, 4, 6), 3, axis=3)
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float() * _half(blocks, 208).unsqueeze(2)
    numbers = (low | (high << 4)) + (128 - 32)
    return Contents(numbers.flatten(1), scales.flatten(1))


def _k_factors(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets of each 32 numbers: factors of six bits, in twelve bytes, times the block's own."""
    first, second, third = blocks[..., 4:16].split(4, 2)
    scales = torch.cat([first & 63, (third & 15) | (first >> 6 << 4)], 2)
    minimums = torch.cat([second & 63, (third >> 4) | (second >> 6 << 4)], 2)
    wide = (_half(blocks, 0).unsqueeze(2) * scales, _half(blocks, 2).unsqueeze(2) * -minimums.float())
    return wide[0].flatten(1), wide[1].flatten(1)


def _half(blocks: Tensor, offset: int) -> Tensor:
    """The float16 at this byte of each block [N, B], as float32."""
    return blocks[..., offset : offset + 2].contiguous().view(torch.float16).squeeze(2).float()


def _nibbles(data: Tensor) -> Tensor:
    """[..., n] -> [..., 2, n]: all lower halves, then all upper ones."""
    return torch.stack([data & 15, data >> 4], -2)


def _fields(data: Tensor, places: tuple[int, ...], mask: int, axis: int) -> Tensor:
    """The bits of `mask` from each of these places on, concatenated on an axis of size 1."""
    return torch.cat([(data >> place) & mask for place in places], axis)


BLOCK_FORMATS: dict[str, BlockFormat] = {
    "Q4_0": BlockFormat(32, 18, 4, 32, partial(_of_32, five_bits=False, offsets=False)),
    "Q4_1": BlockFormat(32, 20, 4, 32, partial(_of_32, five_bits=False, offsets=True)),
    "Q5_0": BlockFormat(32, 22, 8, 32, partial(_of_32, five_bits=True, offsets=False)),
    "Q5_1": BlockFormat(32, 24, 8, 32, partial(_of_32, five_bits=True, offsets=True)),
    "Q8_0": BlockFormat(32, 34, 8, 32, lambda blocks: Contents((blocks[..., 2:] ^ 128).flatten(1), _half(blocks, 0))),
    "Q4_K": BlockFormat(256, 144, 4, 32, _q4_k),
    "Q5_K": BlockFormat(256, 176, 8, 32, _q5_k),
    "Q6_K": BlockFormat(256, 210, 8, 16, _q6_k),
}
