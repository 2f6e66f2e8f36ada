"""Packing, dequantization and the matmul of integer weights with groups, in plain torch."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.grouped import SMALLEST_GROUP, GroupedInts, suited_lanes

_INTEGERS = {  # by the type of scales: their bits, and with a zero or an offset
    torch.float16: (torch.int16, torch.int32),
    torch.bfloat16: (torch.int16, torch.int32),
    torch.float32: (torch.int32, torch.int64),
}


def packed(
    numbers: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, group: int, *, offsets: Tensor | None = None
) -> GroupedInts:
    """Of numbers [N, K] (any integer type, 0 to 2 ** bits - 1), scales and zeros or offsets [ceil(K / group), N].

    Offsets have the type of scales, of 16 bits. A `group` of K or more is a whole row.
    """
    words, lanes, group = _words(numbers, bits, group)
    spans = words.shape[1] // lanes
    missing = -(-spans * lanes * 32 // bits // group) - len(scales)
    factors, scale_type = scales, scales.dtype
    others = zeros if offsets is None else offsets
    if others is not None:
        scale_type = _narrowest(scales)
        integer, word = _INTEGERS[scale_type]
        upper = others.to(integer) if offsets is None else _bits(others, scale_type)
        factors = torch.stack((_bits(scales, scale_type), upper), -1).view(word).squeeze(-1)
    return GroupedInts(
        words=words,
        factors=functional.pad(factors, (0, 0, 0, missing)).contiguous(),
        scale_type=scale_type,
        bits=bits,
        lanes=lanes,
        group=group,
        inputs=numbers.shape[1],
        offsets=offsets is not None,
    )


def inputs_of(weight: GroupedInts, inputs: slice) -> GroupedInts:
    """The weight of these inputs alone. ValueError if they do not begin and end with groups."""
    whole = weight.group >= weight.inputs
    size = weight.inputs if whole else weight.group
    if not whole and (inputs.start % size or (inputs.stop % size and inputs.stop < weight.inputs)):
        raise ValueError(f"inputs {inputs.start} to {inputs.stop} cut through groups of {size}")
    numbers = weight.words.new_empty(weight.outputs, weight.inputs, dtype=torch.uint8)
    if not numbers.is_meta:
        numbers = unpacked(weight)
    words, lanes, group = _words(numbers[:, inputs], weight.bits, size)
    own = weight.factors if whole else weight.factors[inputs.start // size : -(-inputs.stop // size)]
    missing = -(-words.shape[1] * 32 // weight.bits // group) - len(own)
    factors = functional.pad(own, (0, 0, 0, missing)).contiguous()
    return replace(weight, words=words, factors=factors, lanes=lanes, group=group, inputs=inputs.stop - inputs.start)


def _words(numbers: Tensor, bits: int, group: int) -> tuple[Tensor, int, int]:
    """Words [N, S * lanes] of numbers [N, K], their lanes, and the size of groups: a whole row's if it is K or more."""
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
    return words.view(outputs, spans * lanes), lanes, spans * span if whole else group


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
        half, _ = _INTEGERS[weight.scale_type]
        low, others = weight.factors.view(half).unflatten(1, (-1, 2)).unbind(-1)
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


def _bits(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype).contiguous().view(_INTEGERS[dtype][0])


def _narrowest(scales: Tensor) -> torch.dtype:
    """The type that holds the scales and takes least."""
    if scales.dtype != torch.float32 or scales.is_meta:
        return scales.dtype
    halves = (dtype for dtype in (torch.float16, torch.bfloat16) if torch.equal(scales.to(dtype).float(), scales))
    return next(halves, torch.float32)
