"""GPTQ checkpoints (Frantar et al., "GPTQ", 2023), as AutoGPTQ and GPTQModel store them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.models.quantized.awq import MARKS
from thothy_ai.engine.models.quantized.grouped import BITS, GroupedLayout, GroupedNumbers, group_size, unpacked
from thothy_ai.engine.models.quantized.quantization import LayerRule, Quantization, groups_of, plain_layers, strings
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import TensorSource


@dataclass(frozen=True, slots=True)
class Gptq(GroupedLayout):
    """`qweight` [K / n, N] int32 with n = 32 / bits inputs a word, `qzeros` [G, N / n] int32 with n outputs a word,
    `scales` [G, N] and `g_idx` [K] int32, the group of each input.

    `offset`: 1 where zero points are stored less one, as in the first version of the format. `symmetric`: all zero
    points are in the middle. `reordered`: groups are of inputs that quantization ordered by their activations.
    """

    bits: int
    size: int
    offset: int
    symmetric: bool
    reordered: bool

    def numbers(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedNumbers:
        per, groups = 32 // self.bits, groups_of(inputs, self.size)
        if rows % per or inputs % per:
            raise ValueError(f"{rows} by {inputs} numbers do not fill words of {per}")
        words = source.stored(f"{name}.qweight", inputs // per, rows, dtype=torch.int32)
        stored = unpacked(source.stored(f"{name}.qzeros", groups, rows // per, dtype=torch.int32), self.bits)
        scales = source.stored(f"{name}.scales", groups, rows)
        numbers = unpacked(words.t().contiguous(), self.bits)
        zeros: Tensor | None = stored
        if not stored.is_meta:
            zeros = (stored + self.offset) & ((1 << self.bits) - 1)
        elif self.symmetric:
            zeros = None
        index = None  # the group of each input, where they may be out of order
        if self.reordered or source.holds(f"{name}.g_idx"):
            index = source.stored(f"{name}.g_idx", inputs, dtype=torch.int32)
            index = None if index.is_meta and not self.reordered else index
        return GroupedNumbers(numbers, scales, zeros, self.bits, self.size, index)


def gptq(settings: MethodSettings) -> Quantization:
    """`quant_method` "gptq"; GPTQModel's `dynamic` has other settings for some layers, or leaves them plain.

    Early versions of AutoGPTQ gave every layer a bias, of zeros where the model has none.
    """
    form = settings.get("checkpoint_format") or settings.get("format")
    MethodSettings(settings.method, {"checkpoint_format": form}).require("checkpoint_format", "gptq", "gptq_v2", None)
    dynamic = settings.get("dynamic") or {}
    if not isinstance(dynamic, Mapping) or not all(isinstance(changes, Mapping) for changes in dynamic.values()):
        raise ModelLoadError(f"{settings.method}: dynamic is {dynamic!r}")
    rules: list[LayerRule] = []
    for pattern, changes in dynamic.items():
        layout = None  # of layers that stay plain
        if not pattern.startswith("-:"):
            layout = _layout(MethodSettings(settings.method, {**settings.values, **changes}))
        rules.append(LayerRule(pattern[2:] if pattern.startswith(("-:", "+:")) else pattern, layout))
    if not settings.flag("lm_head", default=False):
        rules += plain_layers(["lm_head$"])
    blocks, layout = settings.get("modules_in_block_to_quantize"), _layout(settings)
    if blocks is None:
        rules.append(LayerRule("", layout))
    elif isinstance(blocks, list):  # the ends of the names of all quantized layers
        names = [name for block in blocks for name in (strings(block) if isinstance(block, list) else (block,))]
        rules += [LayerRule(rf".*\.{re.escape(str(name))}$", layout) for name in names]
    else:
        raise ModelLoadError(f"{settings.method}: modules_in_block_to_quantize is {blocks!r}")
    return Quantization("gptq", tuple(rules), if_zero=(".bias",), marks=MARKS, dense_experts=True)


def _layout(settings: MethodSettings) -> Gptq:
    settings.require("bits", *BITS)
    return Gptq(
        bits=settings.integer("bits"),
        size=group_size(settings, settings.get("group_size")),
        offset=0 if "gptq_v2" in (settings.get("checkpoint_format"), settings.get("format")) else 1,
        symmetric=settings.flag("sym", default=True),
        reordered=settings.flag("desc_act", default=False),
    )
