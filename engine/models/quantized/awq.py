"""AWQ checkpoints (Lin et al., "AWQ", 2024), as AutoAWQ stores them for its GEMM kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from thothy_ai.engine.models.quantized.grouped import GroupedLayout, GroupedNumbers, group_size, unpacked
from thothy_ai.engine.models.quantized.quantization import LayerRule, Quantization, groups_of, plain_layers, strings
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import TensorSource

MARKS = ("qweight", "qzeros", "scales")
_BITS, _PER = 4, 8
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # in a word, of the neighbouring outputs 0 to 7: the even ones come first


@dataclass(frozen=True, slots=True)
class Awq(GroupedLayout):
    """`qweight` [K, N / 8] int32, `qzeros` [G, N / 8] int32 and `scales` [G, N], with eight outputs a word."""

    size: int

    def numbers(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedNumbers:
        groups = groups_of(inputs, self.size)
        if rows % _PER:
            raise ValueError(f"{rows} outputs do not fill words of {_PER}")
        words = source.stored(f"{name}.qweight", inputs, rows // _PER, dtype=torch.int32)
        zeros = source.stored(f"{name}.qzeros", groups, rows // _PER, dtype=torch.int32)
        scales = source.stored(f"{name}.scales", groups, rows)
        numbers = unpacked(words, _BITS, _PLACES).t()
        return GroupedNumbers(numbers, scales, unpacked(zeros, _BITS, _PLACES), _BITS, self.size)


def awq(settings: MethodSettings) -> Quantization:
    """`quant_method` "awq". Plain are the head and all layers with a name of `modules_to_not_convert` in theirs."""
    version = settings.get("version") or settings.get("format") or "gemm"
    MethodSettings(settings.method, {"version": str(version).lower()}).require("version", "gemm")
    settings.require("bits", _BITS, None)
    settings.require("zero_point", True, None)
    size = group_size(settings, settings.values.get("group_size", 128))
    listed = [rf".*{re.escape(name)}" for name in strings(settings.get("modules_to_not_convert"))]
    rules = (*plain_layers(["lm_head$", *listed]), LayerRule("", Awq(size)))
    return Quantization("awq", rules, marks=MARKS, dense_experts=True)
