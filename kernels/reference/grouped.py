"""Packing, dequantization and the matmul of integer weights with groups, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.grouped import LANES, GroupedInts, span_of


def packed(numbers: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int) -> GroupedInts:
    """Of numbers [N, K] (any integer type, 0 to 2 ** bits - 1), scales and zeros [ceil(K / group), N].

    A `group` of K or more is a whole row.
    """
    outputs, inputs = numbers.shape
    span = span_of(bits)
    spans = -(-inputs // span)
    group = spans * span if group >= inputs else group
    filled = functional.pad(numbers.to(torch.uint8), (0, spans * span - inputs))
    fields = filled.view(outputs, spans, 32 // bits, LANES)
    words = torch.zeros(outputs, spans, LANES, dtype=torch.int32, device=numbers.device)
    for place in range(32 // bits):
        words |= fields[:, :, place].to(torch.int32) << (place * bits)
    missing = spans * span // group - len(scales)
    return GroupedInts(
        words=words.view(outputs, spans * LANES),
        scales=functional.pad(scales, (0, 0, 0, missing)).contiguous(),
        zeros=None if zeros is None else functional.pad(zeros.to(torch.uint8), (0, 0, 0, missing)).contiguous(),
        bits=bits,
        group=group,
        inputs=inputs,
    )


def unpacked(weight: GroupedInts) -> Tensor:
    """The numbers [N, K] uint8."""
    words = weight.words.view(weight.outputs, -1, LANES)
    mask = (1 << weight.bits) - 1
    fields = [((words >> (place * weight.bits)) & mask).to(torch.uint8) for place in range(weight.numbers_per_word)]
    return torch.stack(fields, dim=2).flatten(1)[:, : weight.inputs]


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
