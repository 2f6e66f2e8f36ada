"""Matmuls of a few fp8 rows in Triton, against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
from torch import Tensor

from tests.support.layer_checks import TYPES, assert_near, normal
from tests.support.margins import Margins
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.matmul import Fp8Matmul
from thothy_ai.kernels.reference.quantize import dequantize, quantize_fp8
from thothy_ai.kernels.triton.skinny_matmul import SkinnyMatmul, counters, multiply
from thothy_ai.kernels.triton.skinny_matmul_tiles import MAX_ROWS, MatmulTile, suited
from thothy_ai.kernels.triton.sms import SMs

WHOLE = MatmulTile(outputs=64, tokens=64, step=64, split=1, stages=3)
SPLIT = WHOLE._replace(tokens=32, split=3)
WIDE = MatmulTile(outputs=128, tokens=16, step=128, split=2, stages=3)
TILES = pytest.mark.parametrize("tile", [WHOLE, SPLIT, WIDE], ids=["whole", "split", "wide"])
H200 = SMs(132, 228 << 10, 227 << 10)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Poisoned = Callable[..., Tensor]


@pytest.fixture
def poisoned(device: torch.device, margins: Margins) -> Poisoned:
    """Memory that shows what a kernel leaves unwritten, and what it writes outside."""

    def make(*shape: int, dtype: torch.dtype) -> Tensor:
        return margins.around(torch.full(shape, float("nan"), dtype=dtype, device=device))

    return make


def factors(rows: int, outputs: int, inner: int, device: torch.device) -> tuple[Quantized, Quantized]:
    """Each row with a scale of its own."""
    x = normal(rows, inner) * torch.logspace(-1, 1, rows)[:, None]
    weight = normal(outputs, inner, seed=1) * torch.logspace(-2, 0, outputs)[:, None] / inner**0.5
    return quantize_fp8(x.to(device)), quantize_fp8(weight.to(device))


def assert_matmul(got: Tensor, x: Quantized, weight: Quantized, bias: Tensor | None = None) -> None:
    """Tensor cores sum products of fp8 with fewer bits than float32 has."""
    left, right = dequantize(x).double(), dequantize(weight).double()
    wanted = left @ right.T + (0 if bias is None else bias.double())
    lost = left.abs() @ right.abs().T * (2e-3 if got.is_cuda else 0)
    assert_near(got, torch.clamp(got.double().nan_to_num(torch.inf), wanted - lost, wanted + lost))


@TILES
@pytest.mark.parametrize("rows", [1, 7, 16, 33, 61])
def test_any_number_of_rows(rows: int, tile: MatmulTile, device: torch.device, poisoned: Poisoned) -> None:
    tile = tile._replace(tokens=max(tile.tokens, triton.next_power_of_2(rows)))
    x, weight = factors(rows, 192, 320, device)
    out = poisoned(rows, 192, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, weight)


@TILES
@pytest.mark.parametrize(("outputs", "inner"), [(16, 16), (48, 80), (176, 272), (64, 128), (208, 464)])
def test_sizes_need_not_fill_tiles(
    outputs: int, inner: int, tile: MatmulTile, device: torch.device, poisoned: Poisoned, margins: Margins
) -> None:
    """What lies around rows, outputs, their scales and biases is never touched."""
    x, weight = (Quantized(*map(margins.around, part)) for part in factors(5, outputs, inner, device))
    x.values.view(torch.uint8)[4] = 0x7E  # the largest value, in the row beside what is beyond the last
    bias = margins.around(normal(outputs, seed=2).to(device))
    out = poisoned(5, outputs, dtype=torch.float32)
    multiply(x, weight, bias, out, tile, counters(weight))
    assert_matmul(out, x, weight, bias)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("biased", [False, True])
@TILES
def test_types_and_bias(
    tile: MatmulTile, biased: bool, dtype: torch.dtype, device: torch.device, poisoned: Poisoned
) -> None:
    x, weight = factors(9, 128, 256, device)
    bias = normal(128, seed=2).to(device, dtype) if biased else None
    out = poisoned(9, 128, dtype=dtype)
    assert multiply(x, weight, bias, out, tile, counters(weight)) is out
    assert_matmul(out, x, weight, bias)
    torch.testing.assert_close(out, Fp8Matmul(weight, bias, dtype)(x), atol=1e-3, rtol=2e-2)


def test_counters_serve_one_matmul_after_another(device: torch.device, poisoned: Poisoned) -> None:
    done = counters(factors(1, 192, 320, device)[1])
    for rows in (16, 3, 32, 16):
        x, weight = factors(rows, 192, 320, device)
        outs = [multiply(x, weight, None, poisoned(rows, 192, dtype=torch.float32), SPLIT, done) for _ in range(2)]
        assert_matmul(outs[0], x, weight)
        assert torch.equal(*outs)
        assert not done.any()


@pytest.mark.parametrize(
    ("rows", "outputs", "split", "stages"),
    [
        (1, 16, 132, 8),
        (16, 4096, 2, 8),
        (17, 6144, 1, 8),
        (32, 28672, 1, 8),
        (33, 1024, 8, 6),
        (64, 28672, 1, 6),
        (65, 4096, 2, 8),
        (MAX_ROWS, 64 * 132, 1, 8),
    ],
)
def test_an_h200_has_the_tiles_that_it_ran_fastest(rows: int, outputs: int, split: int, stages: int) -> None:
    tokens = max(16, triton.next_power_of_2(rows))
    assert suited(rows, outputs, H200) == MatmulTile(64, tokens, 128, split, stages, warps=4)


@pytest.mark.parametrize(("rows", "stages"), [(16, 8), (64, 6), (MAX_ROWS, 4)])
def test_with_99_kb_of_shared_memory_less_is_loaded_ahead(rows: int, stages: int) -> None:
    assert suited(rows, 4096, SMs(128, 100 << 10, 99 << 10)) == MatmulTile(64, rows, 128, 2, stages)


@pytest.mark.parametrize(("rows", "outputs"), [(65, 64 * 132 + 16), (MAX_ROWS, 28672), (MAX_ROWS + 1, 4096)])
def test_where_cublas_is_as_fast_there_is_none(rows: int, outputs: int) -> None:
    assert suited(rows, outputs, H200) is None


@needs_gpu
@pytest.mark.parametrize("shape", [(4096, 4096), (1024, 2048)])
@pytest.mark.parametrize("rows", [1, 16, 60, 96, MAX_ROWS])
def test_suited_tiles_multiply_the_same_each_time(rows: int, shape: tuple[int, int], device: torch.device) -> None:
    x, weight = factors(rows, *shape, device)
    multiply_few = SkinnyMatmul(weight, None, torch.float32)
    first = run(multiply_few, x)
    assert_matmul(first, x, weight)
    assert all(torch.equal(run(multiply_few, x), first) for _ in range(50))


@needs_gpu
def test_graphs_of_one_pool_and_eager_matmuls_alternate(device: torch.device) -> None:
    """Layers of one step, whose partial sums share memory as their counters do not."""
    made = [factors(24, outputs, 4096, device) for outputs in (4096, 1024)]
    layers = [SkinnyMatmul(weight, None, torch.float32) for _, weight in made]
    inputs = [x for x, _ in made]
    wanted = [run(layer, x) for layer, x in zip(layers, inputs, strict=True)]
    pool = torch.cuda.graph_pool_handle()
    graphs, outs = [], []
    for layer, x in zip(layers, inputs, strict=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outs.append(run(layer, x))
        graphs.append(graph)
    for rows in (None, 3, 60):
        if rows is not None:
            for layer, (_, weight) in zip(layers, made, strict=True):
                x = factors(rows, 16, 4096, device)[0]
                assert_matmul(run(layer, x), x, weight)
        for out, graph, want in zip(outs, graphs, wanted, strict=True):
            graph.replay()
            assert torch.equal(out, want)
        assert not any(layer._done.any() for layer in layers)


def run(matmul: SkinnyMatmul, x: Quantized) -> Tensor:
    tile = matmul.tile(len(x.values))
    assert tile is not None
    return matmul(x, tile)
