"""Products of a few fp8 rows in Triton, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
from layer_checks import TYPES, assert_near, normal
from torch import Tensor

from thothy_ai.kernels import product
from thothy_ai.kernels.processors import Processors
from thothy_ai.kernels.product_tiles import MOST_ROWS, ProductTile, suited
from thothy_ai.kernels.product_triton import FewRowsProduct, counters, multiply
from thothy_ai.kernels.quantize import Quantized, dequantize, quantize_fp8

WHOLE = ProductTile(outputs=64, tokens=64, step=64, split=1, stages=3)
SPLIT = WHOLE._replace(tokens=32, split=3)
WIDE = ProductTile(outputs=128, tokens=16, step=128, split=2, stages=3)
TILES = pytest.mark.parametrize("tile", [WHOLE, SPLIT, WIDE], ids=["whole", "split", "wide"])
H200 = Processors(132, 228 << 10, 227 << 10)
Poisoned = Callable[..., Tensor]


@pytest.fixture
def poisoned(device: torch.device) -> Poisoned:
    """Memory that shows what a kernel leaves unwritten."""

    def make(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, float("nan"), dtype=dtype, device=device)

    return make


def factors(rows: int, outputs: int, inner: int, device: torch.device) -> tuple[Quantized, Quantized]:
    """Each row with a scale of its own."""
    x = normal(rows, inner) * torch.logspace(-1, 1, rows)[:, None]
    weight = normal(outputs, inner, seed=1) * torch.logspace(-2, 0, outputs)[:, None] / inner**0.5
    return quantize_fp8(x.to(device)), quantize_fp8(weight.to(device))


def assert_product(got: Tensor, x: Quantized, weight: Quantized, bias: Tensor | None = None) -> None:
    """Tensor cores sum fp8 products with fewer bits than float32 has."""
    left, right = dequantize(x).double(), dequantize(weight).double()
    wanted = left @ right.T + (0 if bias is None else bias.double())
    lost = left.abs() @ right.abs().T * (2e-3 if got.is_cuda else 0)
    assert_near(got, torch.clamp(got.double().nan_to_num(torch.inf), wanted - lost, wanted + lost))


@TILES
@pytest.mark.parametrize("rows", [1, 7, 16, 33, 61])
def test_any_number_of_rows(rows: int, tile: ProductTile, device: torch.device, poisoned: Poisoned) -> None:
    tile = tile._replace(tokens=max(tile.tokens, triton.next_power_of_2(rows)))
    x, weight = factors(rows, 192, 320, device)
    out = poisoned(rows, 192, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_product(out, x, weight)


@TILES
@pytest.mark.parametrize(("outputs", "inner"), [(16, 16), (48, 80), (176, 272), (64, 128), (208, 464)])
def test_sizes_need_not_fill_tiles(
    outputs: int, inner: int, tile: ProductTile, device: torch.device, poisoned: Poisoned
) -> None:
    x, weight = factors(5, outputs, inner, device)
    x.values.view(torch.uint8)[4] = 0x7E  # the largest value, in the row beside what is beyond the last
    out = poisoned(5, outputs, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_product(out, x, weight)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
@TILES
def test_types_and_bias(
    tile: ProductTile, biased: bool, dtype: torch.dtype, device: torch.device, poisoned: Poisoned
) -> None:
    x, weight = factors(9, 128, 256, device)
    bias = normal(128, seed=2).to(device, dtype) if biased else None
    out = poisoned(9, 128, dtype=dtype)
    assert multiply(x, weight, bias, out, tile, counters(weight)) is out
    assert_product(out, x, weight, bias)
    torch.testing.assert_close(out, product.scaled_product(x, weight, bias, dtype), atol=1e-3, rtol=2e-2)


def test_counters_serve_one_product_after_another(device: torch.device, poisoned: Poisoned) -> None:
    done = counters(factors(1, 192, 320, device)[1])
    for rows in (16, 3, 32, 16):
        x, weight = factors(rows, 192, 320, device)
        outs = [multiply(x, weight, None, poisoned(rows, 192, dtype=torch.float32), SPLIT, done) for _ in range(2)]
        assert_product(outs[0], x, weight)
        assert torch.equal(*outs)
        assert not done.any()


@pytest.mark.parametrize("outputs", [16, 1024, 4096, 6144, 28672])
@pytest.mark.parametrize("rows", [1, 16, 17, 64, 65, MOST_ROWS])
@pytest.mark.parametrize("processors", [H200, Processors(128, 100 << 10, 99 << 10)], ids=["H200", "99 KB"])
def test_suited_tiles_hold_the_rows_and_fit(rows: int, outputs: int, processors: Processors) -> None:
    tile = suited(rows, outputs, processors)
    if tile is None:
        assert rows > 64
        assert outputs > 64 * processors.count
        return
    assert rows <= tile.tokens <= max(16, 2 * rows)
    assert tile.stages >= 3
    assert tile.stages * (tile.outputs + tile.tokens) * tile.step < processors.shared_of_program
    assert tile.split == 1 or tile.split * outputs // tile.outputs <= processors.count


def test_more_rows_are_not_suited() -> None:
    assert suited(MOST_ROWS + 1, 4096, H200) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(4096, 4096), (1024, 2048)])
@pytest.mark.parametrize("rows", [1, 16, 60, 96, MOST_ROWS])
def test_suited_tiles_multiply_the_same_each_time(rows: int, shape: tuple[int, int], device: torch.device) -> None:
    x, weight = factors(rows, *shape, device)
    multiply_few = FewRowsProduct(weight, None, torch.float32)
    first = multiply_few(x)
    assert_product(first, x, weight)
    assert all(torch.equal(multiply_few(x), first) for _ in range(50))
    assert not multiply_few.takes(MOST_ROWS + 1)
    with pytest.raises(ValueError, match="too many"):
        multiply_few(factors(MOST_ROWS + 1, *shape, device)[0])
