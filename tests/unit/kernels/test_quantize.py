"""Quantization to fp8 in Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from tests.support.layer_checks import TYPES, assert_quantized, normal
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.reference import quantize
from thothy_ai.kernels.triton.quantize import quantize_fp8, quantize_int8


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 16, 100, 1024, 5000])
def test_equals_the_reference(dtype: torch.dtype, size: int, device: torch.device) -> None:
    x = (normal(5, size) * torch.tensor([1e-3, 1.0, 30.0, 0.0, 1e3])[:, None]).to(device, dtype)
    got, wanted = quantize_fp8(x), quantize.quantize_fp8(x)
    assert_quantized(got, x.double())
    torch.testing.assert_close(got.scales, wanted.scales, rtol=1e-6, atol=0)
    differing = (got.values.float() != wanted.values.float()).float().mean()
    assert float(differing) < 5e-3  # ties that the reciprocal tips over
    assert got.scales[3] == 1


def test_every_fp8_value_stays_itself(device: torch.device) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(FP8).float()
    every = every[every.isfinite()].to(device)
    got = quantize_fp8(every[None])
    assert got.scales.tolist() == [[1.0]]
    assert torch.equal(got.values.float(), every[None])


def test_ties_go_to_even(device: torch.device) -> None:
    x = torch.tensor([[448.0, 1.0625, 1.1875, 1.9375, -1.9375, 2**-10, 3 * 2**-10, 464.0 / 512]], device=device)
    wanted = [448.0, 1.0, 1.25, 2.0, -2.0, 0.0, 2**-8, 0.875]
    assert quantize_fp8(x).values.float().tolist() == [wanted]


def test_rows_of_a_view(device: torch.device) -> None:
    x = normal(6, 80).to(device)[::2, 16:48]
    assert_quantized(quantize_fp8(x), x.double())


def test_no_rows(device: torch.device) -> None:
    assert quantize_fp8(torch.empty(0, 32, device=device)).values.shape == (0, 32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 16, 100, 5000])
def test_int8_equals_the_reference(dtype: torch.dtype, size: int, device: torch.device) -> None:
    x = (normal(5, size) * torch.tensor([1e-3, 1.0, 30.0, 0.0, 1e3])[:, None]).to(device, dtype)
    got, wanted = quantize_int8(x), quantize.quantize_int8(x)
    torch.testing.assert_close(got.scales, wanted.scales, rtol=1e-6, atol=0)
    assert int((got.values.int() - wanted.values.int()).abs().max()) <= 1  # ties that the reciprocal tips over
    assert float((got.values != wanted.values).float().mean()) < 5e-3
    half_step = got.scales.double() * 0.5 * 1.001
    assert bool(((got.values.double() * got.scales.double() - x.double()).abs() <= half_step).all())
    assert got.scales[3] == 1


def test_int8_ties_go_to_even(device: torch.device) -> None:
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -127.0, 126.4]], device=device)
    assert quantize_int8(x).values.tolist() == [[127, 0, 2, 2, 0, -2, -127, 126]]
