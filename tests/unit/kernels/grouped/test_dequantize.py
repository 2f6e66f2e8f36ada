"""Dequantization of integer weights in Triton, and the matmul of many rows that uses it."""

from __future__ import annotations

import pytest
import torch

from tests.support.integer_weights import FORMS, Form, random_weight
from tests.support.layer_checks import TYPES, normal
from tests.support.margins import Margins
from thothy_ai.kernels.reference.grouped import dequantized
from thothy_ai.kernels.triton.grouped import matmul
from thothy_ai.kernels.triton.grouped.dequantize import dequantize

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FORMS)
def test_equals_the_reference(name: str, dtype: torch.dtype, device: torch.device, margins: Margins) -> None:
    weight = random_weight(FORMS[name], device)[0]
    rows = weight.outputs - 11
    out = margins.around(torch.full((rows, weight.inputs), float("nan"), dtype=dtype, device=device))
    assert dequantize(weight, out, 3) is out
    wanted = dequantized(weight)[3 : 3 + rows]
    one_step = 2**-7 if dtype == torch.bfloat16 else 2**-10 if dtype == torch.float16 else 0.0
    torch.testing.assert_close(out.float(), wanted, atol=1e-7, rtol=one_step)


@needs_gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 5, 129, 700])
def test_any_number_of_rows(
    rows: int, biased: bool, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several pieces, the last of which is smaller."""
    monkeypatch.setattr(matmul, "_SCRATCH", 256 * 1024 * dtype.itemsize)
    weight, wanted = random_weight(Form(640, 1024, 128, zeros=True), device)
    x, bias = normal(rows, 1024).to(device, dtype), normal(640, seed=1).to(device, dtype) if biased else None
    got = matmul.GroupedMatmul(weight, bias)(x)
    exact = x.double() @ wanted.T + (0 if bias is None else bias.double())
    error = float((got.double() - exact).norm() / exact.norm().clamp(min=1))
    assert error < {torch.float32: 1e-3, torch.float16: 1e-3, torch.bfloat16: 5e-3}[dtype]
    assert got.shape == (rows, 640)
    assert got.dtype == dtype
