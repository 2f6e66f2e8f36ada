"""Linear layers: what each form computes, holds, and how far fp8 may be off."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.linear import DenseLinear, Fp8Format, Fp8Linear, Linear, PackedLinear, linear
from thothy_ai.kernels.fp8 import FP8, Quantized
from thothy_ai.kernels.reference.operations import ReferenceOperations
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8

TYPES = [torch.float32, torch.bfloat16]
fp8 = Fp8Format(ReferenceOperations())


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_plain_layers_multiply(dtype: torch.dtype, biased: bool) -> None:
    weight, x = normal(24, 40).to(dtype), normal(5, 40, seed=1).to(dtype)
    bias = normal(24, seed=2).to(dtype) if biased else None
    layer = linear(weight, bias)
    assert isinstance(layer, PackedLinear if dtype == torch.float32 else DenseLinear)
    wanted = functional.linear(x.double(), weight.double(), bias.double() if bias is not None else None)
    torch.testing.assert_close(layer(x).double(), wanted, atol=2e-2, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5)
    assert layer.num_bytes == dtype.itemsize * (24 * 40 + 24 * biased)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_fp8_error_is_that_of_its_mantissa(dtype: torch.dtype, biased: bool) -> None:
    weight = (normal(48, 256) * torch.logspace(-3, 1, 48)[:, None]).to(dtype)  # a scale for each output matters
    x = (normal(9, 256, seed=1) * torch.logspace(-2, 2, 9)[:, None]).to(dtype)  # and one for each token
    bias = weight[:, 0].clone() if biased else None
    got = fp8(weight, bias)(x)
    assert got.dtype == dtype
    matmul = got.double() - (bias.double() if bias is not None else 0)
    sizes = x.double().norm(dim=-1)[:, None] * weight.double().norm(dim=-1)
    errors = (matmul - x.double() @ weight.double().T) / sizes
    assert 1e-3 < float(errors.square().mean().sqrt()) < 3e-3  # two roundings of 3 bits, averaged over 256 products
    assert float(errors.square().mean(0).sqrt().max()) < 6e-3
    assert float(errors.square().mean(1).sqrt().max()) < 6e-3


def test_quantized_activations_give_what_plain_ones_do() -> None:
    layer, x = fp8(normal(32, 64)), normal(5, 64, seed=1)
    assert torch.equal(layer(quantize_fp8(x)), layer(x))


def test_fp8_multiplies_exactly_what_it_holds() -> None:
    weight, x = normal(32, 64), quantize_fp8(normal(5, 64, seed=1))
    wanted = dequantize(x).double() @ dequantize(quantize_fp8(weight)).double().T
    torch.testing.assert_close(fp8(weight)(x).double(), wanted, atol=1e-5, rtol=1e-5)


def test_fp8_holds_a_byte_a_weight_and_a_scale_an_output() -> None:
    weight = normal(32, 64).bfloat16()
    assert fp8(weight, normal(32).bfloat16()).num_bytes == 32 * 64 + 4 * 32 + 2 * 32
    assert quantize_fp8(weight).values.dtype == FP8


def test_a_weight_is_quantized_once_and_by_rows() -> None:
    asked: list[Tensor] = []

    class Watched(ReferenceOperations):
        @staticmethod
        def quantize_fp8(x: Tensor) -> Quantized:
            asked.append(x)
            return quantize_fp8(x)

    weight = normal(32, 64)
    layer = Fp8Format(Watched())(weight)
    layer(quantize_fp8(normal(2, 64)))
    layer(quantize_fp8(normal(3, 64)))
    assert [x is weight for x in asked] == [True]


@pytest.mark.parametrize(("out", "into", "kind"), [(32, 48, Fp8Linear), (33, 48, PackedLinear), (32, 40, PackedLinear)])
def test_sizes_that_fp8_does_not_allow_stay_plain(out: int, into: int, kind: type[Linear]) -> None:
    weight, x = normal(out, into), quantize_fp8(normal(4, into, seed=1))
    layer = fp8(weight)
    assert type(layer) is kind
    assert relative_error(layer(x), dequantize(x).double() @ weight.double().T) < 0.05


def test_dense_layers_take_quantized_activations() -> None:
    weight, x = normal(8, 24).bfloat16(), quantize_fp8(normal(4, 24, seed=1))
    got = linear(weight)(x)
    assert got.dtype == torch.bfloat16
    assert relative_error(got, dequantize(x).double() @ weight.double().T) < 0.01
