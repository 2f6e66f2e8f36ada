"""fp8 checkpoints (e4m3): a scale for each output, for the whole weight, or for each block of it.

A scale for the whole weight becomes one for each output, which loses nothing; blocks stay. Activations are quantized
while the model runs, by token or, for blocks, by token and width of a block: static scales of activations are not read,
since these are never coarser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.layers.linear import Fp8BlockLinear
from thothy_ai.engine.models.quantized.quantization import (
    LayerRule,
    Quantization,
    module_pattern,
    plain_layers,
    strings,
)
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import PackedWeight, TensorSource, concatenated
from thothy_ai.kernels.fp8 import FP8, NARROWEST_BLOCK, BlockQuantized, Quantized
from thothy_ai.kernels.operations import Operations

NEEDLESS = ("input_scale", "activation_scale", "activation_scale_ub", "input_scale_ub")  # static, of activations


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """`weight` [N, K] fp8 and `weight_scale` [N, 1]."""

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> Quantized:
        values = source.stored(f"{name}.weight", rows, inputs, dtype=FP8)
        return Quantized(values, source.stored(f"{name}.weight_scale", rows, 1).float())

    dense = read


@dataclass(frozen=True, slots=True)
class Fp8Whole:
    """`weight` [N, K] fp8 and one `weight_scale`, which transformers names `weight_scale_inv`."""

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> Quantized:
        """The weight with the same scale for each row."""
        values = source.stored(f"{name}.weight", rows, inputs, dtype=FP8)
        inverse = source.holds(f"{name}.weight_scale_inv")
        scale = source.stored(f"{name}.weight_scale" + "_inv" * inverse, 1).float()
        return Quantized(values, scale.expand(rows, 1).contiguous())

    dense = read


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """A weight with a scale for each block."""

    blocks: BlockQuantized

    @property
    def rows(self) -> int:
        return self.blocks.values.shape[0]

    @property
    def inputs(self) -> int:
        return self.blocks.values.shape[1]

    def joined(self, below: Sequence[PackedWeight]) -> PackedWeight | None:
        """One weight, if the others have blocks as wide; blocks become less high where a part does not fill its last.

        Scales are repeated then, and stay what they are.
        """
        parts = [self, *(each for each in below if isinstance(each, BlockWeight))]
        width = self.blocks.width
        if len(parts) <= len(below) or any(part.blocks.width != width for part in parts):
            return None
        height = gcd(*(part.blocks.height for part in parts), *(part.rows for part in parts[:-1]))
        scales = concatenated([part._scales_of(height) for part in parts])
        values = concatenated([part.blocks.values.view(torch.uint8) for part in parts])
        return BlockWeight(BlockQuantized(values.view(FP8), scales, height, width))

    def reordered(self, order: Tensor) -> BlockWeight:
        """Each row keeps the scales of its block, as its own."""
        values = self.blocks.values.view(torch.uint8).index_select(0, order).view(FP8)
        return BlockWeight(BlockQuantized(values, self._scales_of(1).index_select(0, order), 1, self.blocks.width))

    def cut_rows(self, rows: slice) -> BlockWeight:
        """Blocks become less high where the first row does not begin one."""
        height, width = gcd(self.blocks.height, rows.start), self.blocks.width
        scales = self._scales_of(height)[rows.start // height : -(-rows.stop // height)].clone()
        return BlockWeight(BlockQuantized(self.blocks.values[rows].clone(), scales, height, width))

    def cut_inputs(self, inputs: slice) -> BlockWeight:
        values, scales, height, width = self.blocks
        if inputs.start % width or (inputs.stop % width and inputs.stop < self.inputs):
            raise ValueError(f"inputs {inputs.start} to {inputs.stop} cut through blocks of {width}")
        own = scales[:, inputs.start // width : -(-inputs.stop // width)].clone()
        return BlockWeight(BlockQuantized(values[:, inputs].clone(), own, height, width))

    def linear(self, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> Fp8BlockLinear:
        return Fp8BlockLinear(self.blocks, bias, dtype, operations)

    def _scales_of(self, height: int) -> Tensor:
        """Of blocks that are so high, a divisor of their height."""
        scales = self.blocks.scales
        return scales.repeat_interleave(self.blocks.height // height, 0)[: -(-self.rows // height)]


@dataclass(frozen=True, slots=True)
class Fp8Blocks:
    """`weight` [N, K] fp8 and `suffix` with a scale for each block of `height` outputs by `width` inputs.

    Blocks at the ends may be cut off (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024). UnsupportedModelError for a
    width that kernels can't compute with.
    """

    height: int
    width: int
    suffix: str = "weight_scale_inv"

    def __post_init__(self) -> None:
        if self.width < NARROWEST_BLOCK or self.width & (self.width - 1):
            raise UnsupportedModelError(
                f"fp8 in blocks of {self.height} by {self.width} is not implemented (32, 64, 128, ... inputs wide)"
            )

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> BlockWeight:
        return BlockWeight(self.dense(source, name, rows, inputs))

    def dense(self, source: TensorSource, name: str, rows: int, inputs: int) -> BlockQuantized:
        values = source.stored(f"{name}.weight", rows, inputs, dtype=FP8)
        blocks = (-(-rows // self.height), -(-inputs // self.width))
        scales = source.stored(f"{name}.{self.suffix}", *blocks).float()
        return BlockQuantized(values, scales, self.height, self.width)


def fp8(settings: MethodSettings) -> Quantization:
    """`quant_method` "fp8" of transformers, DeepSeek, Qwen and AutoFP8."""
    block = settings.get("weight_block_size")
    layout = Fp8Whole() if block is None else Fp8Blocks(*settings.pair("weight_block_size"))
    settings.require("fmt", "e4m3", "float8_e4m3fn", None)
    settings.require("activation_scheme", "dynamic", "static", None)
    return _converted(settings, layout)


def fbgemm_fp8(settings: MethodSettings) -> Quantization:
    return _converted(settings, Fp8Rows())


def _converted(settings: MethodSettings, layout: Fp8Rows | Fp8Whole | Fp8Blocks) -> Quantization:
    listed = (*strings(settings.get("modules_to_not_convert")), *strings(settings.get("ignored_layers")))
    plain = plain_layers([module_pattern(name) for name in ("lm_head", *listed)])
    return Quantization(settings.method, (*plain, LayerRule("", layout)), needs_fp8=True, needless=NEEDLESS)
