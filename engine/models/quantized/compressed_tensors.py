"""compressed-tensors checkpoints, which llm-compressor writes: fp8, W8A8 INT8, and int4 or int8 with groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.quantized.fp8 import NEEDLESS, Fp8Blocks, Fp8Rows, Fp8Whole
from thothy_ai.engine.models.quantized.grouped import (
    BITS,
    WHOLE_ROW,
    GroupedLayout,
    GroupedNumbers,
    group_size,
    unpacked,
)
from thothy_ai.engine.models.quantized.int8 import Int8Rows
from thothy_ai.engine.models.quantized.quantization import (
    LayerRule,
    Layout,
    Quantization,
    groups_of,
    plain_layers,
    strings,
)
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import TensorSource

_METHOD = "compressed-tensors"
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", None)
_CLASSES = ("Linear", "Module")  # of linear layers, which targets may name
_MARKS = ("weight_packed", "weight_scale")
_IGNORED = (*NEEDLESS, "input_zero_point", "weight_shape")


@dataclass(frozen=True, slots=True)
class PackedGroups(GroupedLayout):
    """`weight_packed` [N, K / n] int32 with n = 32 / bits inputs a word, or `weight` [N, K] int8 if not `packed`;
    `weight_scale` [N, G]; `weight_zero_point` [N / n, G] int32 with n outputs a word, or [N, G] int8, unless
    `symmetric`; and `weight_g_idx` [K] int32, the group of each input, where they are `reordered`.

    Packed numbers are unsigned: 2 ** (bits - 1) above what they stand for.
    """

    bits: int
    size: int
    symmetric: bool
    reordered: bool
    packed: bool

    def numbers(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedNumbers:
        per, groups = 32 // self.bits, groups_of(inputs, self.size)
        scales = source.stored(f"{name}.weight_scale", rows, groups).t()
        if self.packed:
            words = source.stored(f"{name}.weight_packed", rows, -(-inputs // per), dtype=torch.int32)
            numbers = unpacked(words, self.bits)[:, :inputs]
        else:
            numbers = self._unsigned(source.stored(f"{name}.weight", rows, inputs, dtype=torch.int8))
        zeros = None
        if not self.symmetric and self.packed:
            words = source.stored(f"{name}.weight_zero_point", -(-rows // per), groups, dtype=torch.int32)
            zeros = unpacked(words.t().contiguous(), self.bits)[:, :rows]
        elif not self.symmetric:
            stored = source.stored(f"{name}.weight_zero_point", rows, groups, dtype=torch.int8)
            zeros = self._unsigned(stored).t()
        index = source.stored(f"{name}.weight_g_idx", inputs, dtype=torch.int32) if self.reordered else None
        return GroupedNumbers(numbers, scales, zeros, self.bits, self.size, index)

    def _unsigned(self, values: Tensor) -> Tensor:
        if values.is_meta:
            return values.to(torch.uint8)
        return (values.to(torch.int16) + (1 << (self.bits - 1))).to(torch.uint8)


def compressed_tensors(settings: MethodSettings) -> Quantization:
    """`quant_method` "compressed-tensors": each group of the configuration names its layers and how they are stored."""
    settings.require("format", *_FORMATS)
    sparsity = settings.get("sparsity_config")
    if isinstance(sparsity, Mapping):
        MethodSettings(_METHOD, {"sparsity": sparsity.get("format")}).require("sparsity", "dense", None)
    if settings.get("transform_config"):
        raise UnsupportedModelError(f"{_METHOD}: transform_config is not implemented")
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise ModelLoadError(f"{_METHOD}: config_groups is {groups!r}")
    found: dict[str, Layout] = {}  # by target: the last group that names one counts
    for group in groups.values():
        found |= _layouts(settings, group)
    rules = plain_layers([_pattern(name) for name in strings(settings.get("ignore"))])
    rules += [LayerRule(_pattern(name), found[name]) for name in sorted(found, key=_precedence)]
    layouts = list(found.values())
    fp8 = [isinstance(layout, Fp8Rows | Fp8Whole | Fp8Blocks) for layout in layouts]
    packed = all(isinstance(layout, PackedGroups) and layout.packed for layout in layouts)
    return Quantization(
        _METHOD,
        tuple(rules),
        needs_fp8=any(fp8),
        needless=_IGNORED,
        marks=_MARKS if packed else (),
        dense_experts=not all(fp8),
    )


def _layouts(settings: MethodSettings, group: object) -> dict[str, Layout]:
    """The layout of a group, by each of its targets."""
    if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
        raise ModelLoadError(f"{_METHOD}: a group of config_groups is {group!r}")
    if group.get("output_activations") is not None:
        raise UnsupportedModelError(f"{_METHOD}: quantized output activations are not implemented")
    form = group.get("format") or settings.get("format")
    MethodSettings(_METHOD, {"format": form}).require("format", *_FORMATS)
    layout = _layout(MethodSettings(_METHOD, group["weights"]), group.get("input_activations"), form)
    return dict.fromkeys(strings(group.get("targets")), layout)


def _layout(weights: MethodSettings, activations: object, form: object) -> Layout:
    """The layout of a group, by its arguments for weights and input activations."""
    kind = f"{weights.get('type')}{weights.get('num_bits')}"
    inputs = f"{activations.get('type')}{activations.get('num_bits')}" if isinstance(activations, Mapping) else None
    if kind == "float8" and inputs in ("float8", None):
        weights.require("strategy", "tensor", "channel", "block")
        weights.require("symmetric", True, None)
        if weights.get("strategy") == "block":
            height, width = weights.pair("block_structure")
            return Fp8Blocks(height, width, suffix="weight_scale")
        return Fp8Whole() if weights.get("strategy") == "tensor" else Fp8Rows()
    if kind == "int8" and inputs == "int8":
        weights.require("strategy", "channel", "tensor")
        weights.require("symmetric", True)
        return Int8Rows(whole=weights.get("strategy") == "tensor")
    if kind in {f"int{bits}" for bits in BITS} and inputs is None:
        return _grouped(weights, packed=form not in ("int-quantized", "naive-quantized"))
    with_inputs = f"activations in {inputs}" if inputs else "activations that are not quantized"
    raise UnsupportedModelError(f"{_METHOD}: weights in {kind} with {with_inputs} are not implemented")


def _grouped(weights: MethodSettings, *, packed: bool) -> PackedGroups:
    weights.require("strategy", "group", "channel")
    weights.require("actorder", None, False, "weight", "static", "group", True)
    grouped = weights.get("strategy") == "group"
    return PackedGroups(
        bits=weights.integer("num_bits"),
        size=group_size(weights, weights.get("group_size")) if grouped else WHOLE_ROW,
        symmetric=weights.flag("symmetric", default=True),
        reordered=weights.get("actorder") in ("group", True),
        packed=packed,
    )


def _pattern(name: str) -> str:
    """The pattern of a target: a module's name, "re:" and a pattern, or a class for all linear layers."""
    if name.startswith("re:"):
        return name.removeprefix("re:")
    return "" if name in _CLASSES else rf"{re.escape(name)}$"


def _precedence(name: str) -> tuple[bool, bool, str]:
    """Of the targets that match a layer, the first by this decides: a name, then a pattern, then a class; among
    several of these, by alphabet (compressed-tensors, `match_targets`)."""
    return name in _CLASSES, name.startswith("re:"), name
