"""Packing, dequantization and the matmul of integer weights with groups, in plain torch."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.grouped import SMALLEST_GROUP, GroupedInts, suited_lanes


def packed(
    numbers: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, *, offsets: Tensor | None = None
) -> GroupedInts:
    """Of numbers [N, K] (any integer type, 0 to 2 ** bits - 1), scales and zeros or offsets [ceil(K / group), N].

    A `group` of K or more is a whole row.
    """
    outputs, inputs = numbers.shape
    whole = group >= inputs
    lanes = suited_lanes(inputs, bits, max(inputs, SMALLEST_GROUP) if whole else group)
    span, places = 32 // bits * lanes, 16 // bits
    spans = -(-inputs // span)
    filled = functional.pad(numbers.to(torch.uint8), (0, spans * span - inputs))
    fields = filled.view(outputs, spans, places, lanes, 2)
    words = torch.zeros(outputs, spans, lanes, dtype=torch.int32, device=numbers.device)
    for place, half in () if words.is_meta else itertools.product(range(places), range(2)):
        words |= fields[:, :, place, :, half].to(torch.int32) << (place * bits + 16 * half)
    group = spans * span if whole else group
    missing = -(-spans * span // group) - len(scales)
    others = None if zeros is None else zeros.to(torch.int16)
    if offsets is not None:
        others = _bits(offsets)
    factors = scales
    if others is not None:
        factors = torch.stack((_bits(scales), others), -1).view(torch.int32).squeeze(-1)
    return GroupedInts(
        words=words.view(outputs, spans * lanes),
        factors=functional.pad(factors, (0, 0, 0, missing)).contiguous(),
        scale_type=scales.dtype if factors.is_floating_point() else _half(scales),
        bits=bits,
        lanes=lanes,
        group=group,
        inputs=inputs,
        offsets=offsets is not None,
    )


def unpacked(weight: GroupedInts) -> Tensor:
    """The numbers [N, K] uint8."""
    words = weight.words.view(weight.outputs, -1, 1, weight.lanes, 1)
    device = weight.words.device
    places = torch.arange(16 // weight.bits, dtype=torch.int32, device=device).view(1, 1, -1, 1, 1) * weight.bits
    halves = torch.arange(2, dtype=torch.int32, device=device) * 16
    numbers = (words >> (places + halves)) & ((1 << weight.bits) - 1)
    return numbers.flatten(1)[:, : weight.inputs].to(torch.uint8)


def dequantized(weight: GroupedInts) -> Tensor:
    """The weight that a linear layer multiplies by: [N, K] float32."""
    scales, others = weight.factors, torch.full_like(weight.factors, 1 << (weight.bits - 1), dtype=torch.float32)
    if not weight.symmetric:
        low, others = weight.factors.view(torch.int16).unflatten(1, (-1, 2)).unbind(-1)
        scales = low.contiguous().view(weight.scale_type)
        others = others.contiguous().view(weight.scale_type) if weight.offsets else others
    numbers = unpacked(weight).float()
    scales, others = _by_input(scales.float(), weight), _by_input(others.float(), weight)
    return numbers * scales + others if weight.offsets else (numbers - others) * scales


class GroupedMatmul:
    """x [T, K] -> [T, N] in the type of x, for one weight [N, K] and bias [N] or none, computed in float32."""

    def __init__(self, weight: GroupedInts, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x.float(), dequantized(self._weight), self._bias).to(x.dtype)


def _by_input(values: Tensor, weight: GroupedInts) -> Tensor:
    """Values of groups [G, N], repeated for each input [N, K]."""
    return values.t().repeat_interleave(weight.group, 1)[:, : weight.inputs]


def _bits(values: Tensor) -> Tensor:
    return values.to(_half(values)).contiguous().view(torch.int16)


def _half(scales: Tensor) -> torch.dtype:
    """The type of 16 bits that loses least of the scales."""
    return torch.float16 if scales.dtype == torch.float32 else scales.dtype
