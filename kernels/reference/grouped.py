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
    factors = _factors(scales, zeros, offsets)
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
    scales, others = _scales_and_others(weight)
    numbers, scales, others = unpacked(weight).float(), _by_input(scales, weight), _by_input(others, weight)
    return numbers * scales + others if weight.offsets else (numbers - others) * scales


def _scales_and_others(weight: GroupedInts) -> tuple[Tensor, Tensor]:
    """Scales and zeros, or scales and offsets, of groups: [G, N] float32 each."""
    if weight.symmetric:
        return weight.factors.float(), torch.full_like(weight.factors, 1 << (weight.bits - 1), dtype=torch.float32)
    scales, others = weight.factors.view(torch.int16).unflatten(1, (-1, 2)).unbind(-1)
    if weight.offsets:
        others = others.contiguous().view(weight.scale_type)
    return scales.contiguous().view(weight.scale_type).float(), others.float()


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


def _factors(scales: Tensor, zeros: Tensor | None, offsets: Tensor | None) -> Tensor:
    """[G, N] int32, or the scales alone."""
    if offsets is not None:
        return _side_by_side(_bits(scales), _bits(offsets))
    return scales if zeros is None else _side_by_side(_bits(scales), zeros.to(torch.int16))


def _side_by_side(low: Tensor, high: Tensor) -> Tensor:
    return torch.stack((low, high), -1).view(torch.int32).squeeze(-1)


def _bits(values: Tensor) -> Tensor:
    return values.to(_half(values)).contiguous().view(torch.int16)


def _half(scales: Tensor) -> torch.dtype:
    """The type of 16 bits that loses least of the scales."""
    return torch.float16 if scales.dtype == torch.float32 else scales.dtype
