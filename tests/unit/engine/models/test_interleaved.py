"""The order that puts rotary pairs in halves, of plain and of packed weights."""

from __future__ import annotations

import torch

from thothy_ai.engine.models.interleaved import half_split_order, reordered
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.quantize import quantize_fp8


def test_pairs_go_to_halves_and_the_rest_stays() -> None:
    assert half_split_order(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]
    assert half_split_order(1, 4, 4).tolist() == [0, 2, 1, 3]


def test_packed_rows_take_their_scales_along() -> None:
    weight = quantize_fp8(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
    order = half_split_order(1, 4, 4)
    got = reordered(weight, order)
    assert isinstance(got, Quantized)
    assert torch.equal(got.values.float(), weight.values.float()[order])
    assert torch.equal(got.scales, weight.scales[order])
    assert reordered(weight, None) is weight
