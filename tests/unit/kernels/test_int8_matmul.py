"""Matmuls of int8 activations and an int8 weight in Triton, whose sums are exact, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, normal
from tests.support.margins import Margins
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference import int8_matmul as reference
from thothy_ai.kernels.reference.quantize import quantize_int8
from thothy_ai.kernels.triton import int8_matmul
from thothy_ai.kernels.triton.skinny_matmul import counters, multiply
from thothy_ai.kernels.triton.skinny_matmul_tiles import MatmulTile

WHOLE = MatmulTile(outputs=64, tokens=16, step=64, split=1, stages=3)
SPLIT = WHOLE._replace(split=3)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def factors(rows: int, outputs: int, inner: int, device: torch.device) -> tuple[Quantized, Quantized]:
    x = normal(rows, inner) * torch.logspace(-1, 1, rows)[:, None]
    weight = normal(outputs, inner, seed=1) * torch.logspace(-2, 0, outputs)[:, None] / inner**0.5
    return quantize_int8(x.to(device)), quantize_int8(weight.to(device))


def exact(x: Quantized, weight: Quantized, bias: Tensor | None) -> Tensor:
    product = (x.values.double() * x.scales.double()) @ (weight.values.double() * weight.scales.double()).T
    return product if bias is None else product + bias.double()


@pytest.mark.parametrize("tile", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize(("outputs", "inner"), [(64, 128), (48, 80), (176, 272)])
def test_few_rows(outputs: int, inner: int, tile: MatmulTile, device: torch.device, margins: Margins) -> None:
    x, weight = (Quantized(*map(margins.around, part)) for part in factors(5, outputs, inner, device))
    bias = margins.around(normal(outputs, seed=2).to(device))
    out = margins.around(torch.full((5, outputs), float("nan"), device=device))
    multiply(x, weight, bias, out, tile, counters(weight))
    torch.testing.assert_close(out.double(), exact(x, weight, bias), atol=1e-6, rtol=1e-5)


def test_more_rows_than_a_tile_holds(device: torch.device, margins: Margins) -> None:
    x, weight = (Quantized(*map(margins.around, part)) for part in factors(37, 80, 128, device))
    out = margins.around(torch.full((37, 80), float("nan"), device=device))
    multiply(x, weight, None, out, WHOLE, counters(weight))
    torch.testing.assert_close(out.double(), exact(x, weight, None), atol=1e-6, rtol=1e-5)


@needs_gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [0, 1, 16, 17, 64, 129, 200, 1000])
def test_any_number_of_rows(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    x, weight = factors(rows, 1024, 512, device)
    bias = normal(1024, seed=2).to(device, dtype)
    got, wanted = (kind(weight, bias, dtype)(x) for kind in (int8_matmul.Int8Matmul, reference.Int8Matmul))
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-2 if dtype != torch.float32 else 1e-5)
