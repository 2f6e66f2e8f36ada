"""Residual addition and RMS norm in Triton, plain and quantized, against formulas in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, assert_near, assert_quantized, normal
from thothy_ai.kernels.reference import norm
from thothy_ai.kernels.triton.norm import add_rms_norm, add_rms_norm_fp8, rms_norm

SIZES = [1, 16, 33, 576, 1024, 5120, 14336] if torch.cuda.is_available() else [1, 16, 33, 576, 5120]
MANY = 4099 if torch.cuda.is_available() else 9


def case(size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    x = (normal(5, size) * torch.tensor([1.0, 1e-3, 30.0, 0.0, 5.0])[:, None]).to(device, dtype)
    residual = normal(5, size, seed=1).to(device, dtype)
    residual[3] = 0  # with x, a row of zeros
    return x, residual, normal(size, seed=2).to(device, dtype)


def assert_added(residual: Tensor, wanted: Tensor) -> None:
    step = 0 if residual.is_cuda or residual.dtype != torch.bfloat16 else 2**-7  # the interpreter cuts bfloat16 off
    torch.testing.assert_close(residual, wanted, atol=0, rtol=step)


def normed64(total: Tensor, weight: Tensor, eps: float) -> Tensor:
    total = total.double()
    return total / (total.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("weights", ["as x", "float32"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_rms_norm(size: int, dtype: torch.dtype, weights: str, device: torch.device) -> None:
    x, _, weight = case(size, dtype, device)
    weight = weight.float() if weights == "float32" else weight
    before = x.clone()
    got, same = rms_norm(x, weight, 1e-5), norm.rms_norm(x, weight, 1e-5)
    assert got.dtype == same.dtype == dtype
    assert torch.equal(x, before)
    assert_near(got, normed64(x, weight, 1e-5))
    torch.testing.assert_close(got, same, atol=1e-5, rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_float32_weight_beside_16_bits(size: int, dtype: torch.dtype, device: torch.device) -> None:
    """In the fused kernel."""
    x, residual, weight = case(size, dtype, device)
    weight = weight.float() + 1e-4  # which bfloat16 would lose
    kept = residual.clone()
    got = add_rms_norm(x, residual, weight, 1e-5)
    assert got.dtype == dtype
    assert_near(got, normed64(residual, weight, 1e-5))
    torch.testing.assert_close(got, norm.add_rms_norm(x, kept, weight, 1e-5), atol=1e-5, rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_add_rms_norm(size: int, dtype: torch.dtype, device: torch.device) -> None:
    x, residual, weight = case(size, dtype, device)
    kept, before = residual.clone(), x.clone()
    got = add_rms_norm(x, residual, weight, 1e-5)
    assert got.dtype == dtype
    assert_added(residual, kept + x)
    assert torch.equal(x, before)
    assert_near(got, normed64(residual, weight, 1e-5))
    torch.testing.assert_close(got, norm.add_rms_norm(x, kept, weight, 1e-5), atol=1e-5, rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_add_rms_norm_fp8(size: int, dtype: torch.dtype, device: torch.device) -> None:
    x, residual, weight = case(size, dtype, device)
    total = residual + x
    got = add_rms_norm_fp8(x, residual, weight, 0.5)
    assert_added(residual, total)
    assert_quantized(got, normed64(residual, weight, 0.5))


def test_rows_of_a_view_and_no_others(device: torch.device) -> None:
    wide, weight = normal(4, 96).to(device), normal(32, seed=2).to(device)
    x, residual = wide[:, 64:], wide[:, 16:48]
    before = wide.clone()
    assert_near(rms_norm(x, weight, 1e-5), normed64(x, weight, 1e-5))
    assert_near(add_rms_norm(x, residual, weight, 1e-5), normed64(before[:, 16:48] + before[:, 64:], weight, 1e-5))
    assert torch.equal(wide[:, :16], before[:, :16])
    assert torch.equal(wide[:, 48:], before[:, 48:])


def test_many_rows(device: torch.device) -> None:
    x, residual, weight = (normal(*shape).to(device, torch.bfloat16) for shape in ((MANY, 640), (MANY, 640), (640,)))
    again = residual.clone()
    assert_near(add_rms_norm(x, residual, weight, 1e-5), normed64(residual, weight, 1e-5))
    assert_quantized(add_rms_norm_fp8(x, again, weight, 1e-5), normed64(again, weight, 1e-5))


def test_no_rows(device: torch.device) -> None:
    empty = torch.empty(0, 32, device=device)
    assert add_rms_norm(empty, empty.clone(), torch.ones(32, device=device), 1e-5).shape == (0, 32)
