"""fp8 checkpoints (e4m3): a scale for each output, for the whole weight, or for each block of it.

Every weight becomes one with a scale for each output. The first two lose nothing by that. A weight of blocks is rounded
a second time; benchmarks/accuracy.py measures what that costs. Activations are always quantized by token while the
model runs: static scales of activations are not read, since scales by token are never coarser.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thothy_ai.engine.models.quantized.quantization import (
    LayerRule,
    Quantization,
    module_pattern,
    plain_layers,
    strings,
)
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import TensorSource
from thothy_ai.kernels.fp8 import FP8, Quantized
from thothy_ai.kernels.reference.quantize import quantize_fp8

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
class Fp8Blocks:
    """`weight` [N, K] fp8 and `suffix` with a scale for each block of `height` outputs by `width` inputs.

    Blocks at the ends may be cut off (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024).
    """

    height: int
    width: int
    suffix: str = "weight_scale_inv"

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> Quantized:
        """The weight, rounded again with a scale for each row."""
        values = source.stored(f"{name}.weight", rows, inputs, dtype=FP8)
        blocks = (-(-rows // self.height), -(-inputs // self.width))
        scales = source.stored(f"{name}.{self.suffix}", *blocks)
        if values.is_meta:
            return Quantized(values, scales.new_empty(rows, 1, dtype=torch.float32))
        by_row = scales.float().repeat_interleave(self.height, 0)[:rows]
        return quantize_fp8(values.float().mul_(by_row.repeat_interleave(self.width, 1)[:, :inputs]))

    dense = read


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
