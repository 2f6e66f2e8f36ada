"""Gated activations in Triton, plain and quantized, against the formulas in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, assert_near, assert_quantized, normal
from thothy_ai.kernels.fp8 import TINY
from thothy_ai.kernels.reference import activation
from thothy_ai.kernels.triton.activation import (
    add_gated,
    gelu_tanh_mul,
    gelu_tanh_mul_fp8,
    sigmoid_mul,
    silu_mul,
    silu_mul_fp8,
)

SIZES = [1, 33, 1024, 1536, 3072, 14336] if torch.cuda.is_available() else [1, 33, 1024, 1536]
MANY = 4099 if torch.cuda.is_available() else 9


def case(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return (normal(4, 2 * size) * torch.tensor([1.0, 1e-2, 8.0, 0.0])[:, None]).to(device, dtype)


def gated64(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.double().chunk(2, dim=-1)
    return gate / (1 + (-gate).exp()) * up


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_silu_mul(size: int, dtype: torch.dtype, device: torch.device) -> None:
    gate_up = case(size, dtype, device)
    got = silu_mul(gate_up)
    assert got.dtype == dtype
    assert_near(got, gated64(gate_up))
    torch.testing.assert_close(got, activation.silu_mul(gate_up), atol=1e-5, rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_silu_mul_fp8(size: int, dtype: torch.dtype, device: torch.device) -> None:
    gate_up = case(size, dtype, device)
    assert_quantized(silu_mul_fp8(gate_up), gated64(gate_up))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_results_are_gated_by_a_number_of_each_or_of_all(size: int, dtype: torch.dtype, device: torch.device) -> None:
    x, gate = case(size, dtype, device).chunk(2, dim=1)
    score, total = normal(4, 1, seed=1).to(device, dtype), normal(4, size, seed=2).to(device, dtype)
    assert_near(sigmoid_mul(x, gate), x.double() * gate.double().sigmoid())
    wanted, by_torch = total.double() + x.double() * score.double().sigmoid(), total.clone()
    activation.add_gated(by_torch, x.contiguous(), score)
    add_gated(total, x.contiguous(), score)
    assert_near(total, wanted)
    assert_near(by_torch, wanted)


def test_large_gates_neither_overflow_nor_vanish(device: torch.device) -> None:
    gate_up = torch.tensor([[-80.0, 1000.0, 0.0, 2.0, 3.0, 4.0]], device=device)
    torch.testing.assert_close(silu_mul(gate_up), torch.tensor([[0.0, 3000.0, 0.0]], device=device))


def test_rows_of_a_view(device: torch.device) -> None:
    gate_up = normal(6, 100).to(device)[::2, 20:84]
    assert_near(silu_mul(gate_up), gated64(gate_up))
    assert_quantized(silu_mul_fp8(gate_up), gated64(gate_up))


def test_many_rows(device: torch.device) -> None:
    gate_up = normal(MANY, 2 * 1100).to(device, torch.bfloat16)
    assert_near(silu_mul(gate_up), gated64(gate_up))
    assert_quantized(silu_mul_fp8(gate_up), gated64(gate_up))


def test_no_rows(device: torch.device) -> None:
    assert silu_mul(torch.empty(0, 32, device=device)).shape == (0, 16)


def gelu64(gate_up: Tensor) -> Tensor:
    """By the sigmoid that (1 + tanh) / 2 is: 1 + tanh would cancel to 0 for a gate below -7."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    exact = gate * (2 * math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)).sigmoid() * up
    return exact.where(exact.abs() > TINY, 0.0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_gelu_tanh_mul(size: int, dtype: torch.dtype, device: torch.device) -> None:
    gate_up = case(size, dtype, device)
    got = gelu_tanh_mul(gate_up)
    assert got.dtype == dtype
    assert_near(got, gelu64(gate_up))
    torch.testing.assert_close(got, activation.gelu_tanh_mul(gate_up), atol=1e-5, rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_gelu_tanh_mul_fp8(size: int, dtype: torch.dtype, device: torch.device) -> None:
    gate_up = case(size, dtype, device)
    assert_quantized(gelu_tanh_mul_fp8(gate_up), gelu64(gate_up))
    assert_quantized(activation.gelu_tanh_mul_fp8(gate_up), activation.gelu_tanh_mul(gate_up.float()).double())
