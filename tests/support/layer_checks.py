"""What the tests of the layer operations share: random tensors, and how near a kernel's result must be."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import FP8, Quantized
from thothy_ai.kernels.reference.quantize import dequantize

TYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCES = {
    torch.float32: {"atol": 1e-5, "rtol": 1e-5},
    torch.bfloat16: {"atol": 1.5e-2, "rtol": 1e-2},
    torch.float16: {"atol": 2e-3, "rtol": 2e-3},
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_near(got: Tensor, wanted: Tensor) -> None:
    """`wanted` float64; tolerances are those of `got`'s type."""
    torch.testing.assert_close(got.double(), wanted, **TOLERANCES[got.dtype])


def assert_quantized(got: Quantized, wanted: Tensor) -> None:
    """`got` is `wanted` float64 [T, N], except for half a step of rounding."""
    assert got.values.dtype == FP8
    assert got.scales.shape == (len(wanted), 1)
    largest = wanted.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(got.scales.double(), (largest / 448).where(largest > 0, 1.0), rtol=1e-2, atol=0)
    half_step = (wanted.abs() / 16).maximum(got.scales.double() * 2**-10)
    assert bool(((dequantize(got).double() - wanted).abs() <= half_step * 1.05).all())
