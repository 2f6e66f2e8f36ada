"""Packing, dequantization and the matmul of integer weights with groups, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.grouped import SMALLEST_GROUP, GroupedInts, suited_lanes


def packed(numbers: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int) -> GroupedInts:
    """Of numbers [N, K] (any integer type, 0 to 2 ** bits - 1), scales and zeros [ceil(K / group), N].

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
    for place in range(places):
        for half in range(2):
            words |= fields[:, :, place, :, half].to(torch.int32) << (place * bits + 16 * half)
    group = spans * span if whole else group
    missing = -(-spans * span // group) - len(scales)
    return GroupedInts(
        words=words.view(outputs, spans * lanes),
        scales=functional.pad(scales, (0, 0, 0, missing)).contiguous(),
        zeros=None if zeros is None else functional.pad(zeros.to(torch.uint8), (0, 0, 0, missing)).contiguous(),
        bits=bits,
        lanes=lanes,
        group=group,
        inputs=inputs,
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
    """[N, K] float32."""
    numbers = unpacked(weight).float()
    scales = _by_input(weight.scales, weight)
    zeros = 1 << (weight.bits - 1) if weight.zeros is None else _by_input(weight.zeros, weight)
    return (numbers - zeros) * scales


class GroupedMatmul:
    """x [T, K] -> [T, N] in the type of x, for one weight [N, K] and bias [N] or none, computed in float32."""

    def __init__(self, weight: GroupedInts, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        return functional.linear(x.float(), dequantized(self._weight), self._bias).to(x.dtype)


def _by_input(values: Tensor, weight: GroupedInts) -> Tensor:
    """Of groups [G, N], for each input [N, K] float32."""
    return values.float().t().repeat_interleave(weight.group, 1)[:, : weight.inputs]
