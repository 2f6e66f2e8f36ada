"""Matmuls of fp8 with a scale for each block of the weight, in Triton, against float64 and the reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.layer_checks import TYPES, normal
from tests.support.margins import Margins
from thothy_ai.kernels.fp8 import FP8, BlockQuantized
from thothy_ai.kernels.reference import block_matmul as reference
from thothy_ai.kernels.reference import quantize
from thothy_ai.kernels.reference.quantize import dequantize_blocks
from thothy_ai.kernels.triton import block_matmul
from thothy_ai.kernels.triton.quantize import quantize_fp8_groups
from thothy_ai.kernels.triton.skinny_matmul import counters, multiply
from thothy_ai.kernels.triton.skinny_matmul_tiles import MANY, MANY_IN_BLOCKS, MatmulTile, suited_to_blocks
from thothy_ai.kernels.triton.sms import SMs

WHOLE = MatmulTile(outputs=64, tokens=16, step=128, split=1, stages=3)
TILES = {
    "whole": WHOLE,
    "split": WHOLE._replace(split=3),
    "steps of half a block": WHOLE._replace(step=64, split=2),
    "many": MANY,
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def weight_of(outputs: int, inner: int, height: int, width: int, device: torch.device) -> BlockQuantized:
    """Blocks whose scales are far apart."""
    blocks = -(-outputs // height), -(-inner // width)
    scales = torch.logspace(-6, -2, blocks[0] * blocks[1])[_shuffled(blocks[0] * blocks[1])].view(blocks)
    values = (100 * normal(outputs, inner, seed=1)).clamp(-448, 448).to(FP8)
    return BlockQuantized(values.to(device), scales.to(device), height, width)


def _shuffled(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(count))


def activations(rows: int, inner: int, width: int, device: torch.device) -> BlockQuantized:
    x = normal(rows, inner) * torch.logspace(-2, 2, inner)
    return quantize.quantize_fp8_groups(x.to(device), width)


def assert_matmul(got: Tensor, x: BlockQuantized, weight: BlockQuantized, bias: Tensor | None = None) -> None:
    """Tensor cores sum the products of a step with fewer bits than float32 has."""
    left, right = dequantize_blocks(x).double(), dequantize_blocks(weight).double()
    wanted = left @ right.T + (0 if bias is None else bias.double())
    most = left.abs() @ right.abs().T
    lost = most * (2e-3 if got.is_cuda else 1e-6) + wanted.abs() * {4: 1e-6, 2: 1e-2}[got.dtype.itemsize]
    assert bool(((got.double() - wanted).abs() <= lost).all())


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
@pytest.mark.parametrize(
    ("outputs", "inner", "height", "width"),
    [
        (128, 256, 128, 128),
        (192, 320, 128, 128),
        (100, 150, 128, 128),
        (176, 272, 48, 32),
        (80, 96, 1, 32),
        (72, 500, 64, 256),
    ],
)
def test_blocks_of_any_shape(
    outputs: int, inner: int, height: int, width: int, tile: MatmulTile, device: torch.device, margins: Margins
) -> None:
    """What lies around rows, outputs, their scales and biases is never touched."""
    x, weight = activations(5, inner, width, device), weight_of(outputs, inner, height, width, device)
    x, weight = (each._replace(values=margins.around(each.values), scales=margins.around(each.scales))
                 for each in (x, weight))  # fmt: skip
    bias = margins.around(normal(outputs, seed=2).to(device))
    out = margins.around(torch.full((5, outputs), float("nan"), device=device))
    done = counters(weight)
    multiply(x, weight, bias, out, tile, done)
    assert_matmul(out, x, weight, bias)
    assert not done.any()


@pytest.mark.parametrize("tile", [WHOLE, MANY], ids=["few", "many"])
@pytest.mark.parametrize("dtype", TYPES)
def test_more_rows_than_a_tile_holds(
    dtype: torch.dtype, tile: MatmulTile, device: torch.device, margins: Margins
) -> None:
    x, weight = activations(150, 256, 128, device), weight_of(80, 256, 128, 128, device)
    out = margins.around(torch.full((150, 80), float("nan"), dtype=dtype, device=device))
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, weight)
    wanted = reference.Fp8BlockMatmul(weight, None, dtype)(x)
    torch.testing.assert_close(out, wanted, atol=5e-3 * float(wanted.abs().max()), rtol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("inputs", "size"), [(96, 128), (256, 128), (300, 32), (5000, 128), (40, 32)])
def test_groups_equal_the_reference(
    inputs: int, size: int, dtype: torch.dtype, device: torch.device, margins: Margins
) -> None:
    x = (normal(3, inputs) * torch.logspace(-2, 2, inputs)).to(device, dtype)
    x[1, :33] = 0
    x = margins.around(x)
    got, wanted = quantize_fp8_groups(x, size), quantize.quantize_fp8_groups(x, size)
    assert got[2:] == wanted[2:] == (1, size)
    torch.testing.assert_close(got.scales, wanted.scales, rtol=1e-6, atol=0)
    assert float((got.values.float() != wanted.values.float()).float().mean()) < 5e-3  # ties
    half_step = (x.double().abs() / 16).maximum(got.scales.double().repeat_interleave(size, 1)[:, :inputs] * 2**-10)
    assert bool(((dequantize_blocks(got).double() - x.double()).abs() <= half_step * 1.05).all())


def test_groups_of_a_view_and_of_no_rows(device: torch.device) -> None:
    x = normal(6, 320).to(device)[::2, 16:272]
    wanted = quantize.quantize_fp8_groups(x, 128)
    torch.testing.assert_close(quantize_fp8_groups(x, 128).scales, wanted.scales)
    assert quantize_fp8_groups(x[:0], 128).values.shape == (0, 256)


@pytest.mark.parametrize(
    ("rows", "outputs", "shared", "tile"),
    [
        (16, 4096, 227, MatmulTile(64, 16, 128, 2, 8)),
        (128, 28672, 227, MANY_IN_BLOCKS),
        (8192, 1024, 227, MANY_IN_BLOCKS),
        (8192, 1024, 99, MANY_IN_BLOCKS),
    ],
)
def test_any_number_of_rows_has_a_tile(rows: int, outputs: int, shared: int, tile: MatmulTile) -> None:
    assert suited_to_blocks(rows, outputs, SMs(132, (shared + 1) << 10, shared << 10)) == tile


@needs_gpu
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [0, 1, 16, 17, 64, 128, 129, 200, 1000])
def test_any_number_of_rows(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    x, weight = activations(rows, 2048, 128, device), weight_of(1152, 2048, 128, 128, device)
    bias = normal(1152, seed=2).to(device, dtype)
    multiply_all = block_matmul.Fp8BlockMatmul(weight, bias, dtype)
    got = multiply_all(x)
    assert got.shape == (rows, 1152)
    assert_matmul(got, x, weight, bias)
    assert torch.equal(multiply_all(x), got), "sums do not depend on which part ends last"
