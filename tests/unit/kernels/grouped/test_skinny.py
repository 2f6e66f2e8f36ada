"""Matmuls of a few rows and an integer weight with groups in Triton, against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import triton
from torch import Tensor

from tests.support.integer_weights import FORMS, Form, random_weight
from tests.support.layer_checks import TOLERANCES, normal
from tests.support.margins import Margins
from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.reference.grouped import packed
from thothy_ai.kernels.triton.grouped import GroupedMatmul
from thothy_ai.kernels.triton.grouped.skinny import SkinnyGroupedMatmul, counters, multiply
from thothy_ai.kernels.triton.grouped.tiles import MAX_ROWS, GroupedTile

WHOLE = GroupedTile(outputs=64, tokens=64, split=1, stages=3)
SPLIT = WHOLE._replace(tokens=16, split=2)
TOKENS_FIRST = GroupedTile(outputs=64, tokens=16, split=1, stages=3, warps=2, registers=128, tokens_first=True)
TOKENS_FIRST_SPLIT = GroupedTile(outputs=128, tokens=32, split=2, stages=3, tokens_first=True)
TILES = {
    "whole": WHOLE,
    "split": SPLIT,
    "tokens first": TOKENS_FIRST,
    "tokens first, split": TOKENS_FIRST_SPLIT,
    "tokens first, wide": TOKENS_FIRST_SPLIT._replace(outputs=256, tokens=16),
}
SPLIT_TILES = pytest.mark.parametrize("tile", [SPLIT, TOKENS_FIRST_SPLIT], ids=["weights first", "tokens first"])
HALVES = [torch.float16, torch.bfloat16]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Poisoned = Callable[..., Tensor]


@pytest.fixture
def poisoned(device: torch.device, margins: Margins) -> Poisoned:
    """Memory that shows what a kernel leaves unwritten, and what it writes outside."""

    def make(*shape: int, dtype: torch.dtype) -> Tensor:
        return margins.around(torch.full(shape, float("nan"), dtype=dtype, device=device))

    return make


def guarded(weight: GroupedInts, margins: Margins) -> GroupedInts:
    return replace(weight, words=margins.around(weight.words), factors=margins.around(weight.factors))


def assert_matmul(got: Tensor, x: Tensor, wanted: Tensor, bias: Tensor | None = None) -> None:
    """Tensor cores add with a little less than float32's precision; `got` is float32."""
    exact = x.double() @ wanted.T + (0 if bias is None else bias.double())
    lost = 1e-5 * (x.double().abs() @ wanted.abs().T)
    torch.testing.assert_close(got.double(), exact, atol=1e-5 + float(lost.max()), rtol=1e-5)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("name", "cut"),
    [(name, cut) for name in FORMS for cut in TILES if FORMS[name].bits == 4 or not TILES[cut].tokens_first],
)
def test_every_form_of_weight(
    name: str, cut: str, dtype: torch.dtype, device: torch.device, poisoned: Poisoned, margins: Margins
) -> None:
    """What lies around rows, words, scales and zeros is never touched."""
    tile = TILES[cut]
    weight, wanted = random_weight(FORMS[name], device)
    x = margins.around(normal(5, weight.inputs).to(device, dtype))
    bias = margins.around(normal(weight.outputs, seed=2).to(device))
    out = poisoned(5, weight.outputs, dtype=torch.float32)
    multiply(x, guarded(weight, margins), bias, out, tile, counters(weight))
    assert_matmul(out, x, wanted, bias)


@pytest.mark.parametrize(
    ("rows", "tile"),
    [
        *((rows, tile) for rows in (1, 7, 16, 33, 61) for tile in (WHOLE, SPLIT)),
        *((rows, tile) for rows in (1, 7, 16, 17, 32) for tile in (TOKENS_FIRST, TOKENS_FIRST_SPLIT)),
        (61, SPLIT._replace(outputs=128)),  # too many rows to be merged at once
    ],
)
def test_any_number_of_rows(rows: int, tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    tile = tile._replace(tokens=max(tile.tokens, triton.next_power_of_2(rows)))
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x = normal(rows, 512).to(device, torch.bfloat16)
    out = poisoned(rows, 64, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, wanted)


@SPLIT_TILES
@pytest.mark.parametrize("dtype", HALVES)
def test_results_have_the_type_of_the_activations(
    dtype: torch.dtype, tile: GroupedTile, device: torch.device, poisoned: Poisoned
) -> None:
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x, out = normal(3, 512).to(device, dtype), poisoned(3, 64, dtype=dtype)
    assert multiply(x, weight, None, out, tile, counters(weight)) is out
    torch.testing.assert_close(out.double() / 10, x.double() @ wanted.T / 10, **TOLERANCES[dtype])


@SPLIT_TILES
@pytest.mark.parametrize("scale_type", [torch.bfloat16, torch.float32])
def test_scales_of_other_types(
    scale_type: torch.dtype, tile: GroupedTile, device: torch.device, poisoned: Poisoned
) -> None:
    weight, wanted = random_weight(FORMS["groups of 32, outputs that fill no tile"], device, scale_type)
    x, out = normal(3, 512).to(device, torch.float16), poisoned(3, 70, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, wanted)


@SPLIT_TILES
def test_a_row_of_scales_may_have_any_stride(tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    """That of a single row of a transposed tensor is 1."""
    weight, wanted = random_weight(Form(64, 128, 128), device)
    weight = replace(weight, factors=weight.factors.view(-1, 1).t())
    x, out = normal(3, 128).to(device, torch.bfloat16), poisoned(3, 64, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, wanted)


@SPLIT_TILES
@pytest.mark.parametrize("zero", [0, 15, 16, 31])
def test_zeros_that_4_bits_do_not_hold(zero: int, tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    """GPTQ stores zeros less one."""
    numbers = torch.randint(16, (64, 256), generator=torch.Generator().manual_seed(1))
    scales = torch.full((2, 64), 0.25, dtype=torch.float16, device=device)
    weight = packed(numbers.to(device), scales, torch.full((2, 64), zero, device=device), 4, 128)
    x, out = normal(3, 256).to(device, torch.bfloat16), poisoned(3, 64, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, (numbers - zero).double().to(device) / 4)


@SPLIT_TILES
def test_rows_of_a_view(tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x = normal(4, 1024).to(device, torch.float16)[:, 512:]
    out = poisoned(4, 64, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, wanted)


@SPLIT_TILES
def test_counters_serve_one_matmul_after_another(tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(Form(192, 1024, 128), device)
    done = counters(weight)
    for rows in (16, 3, 16):
        x = normal(rows, 1024, seed=rows).to(device, torch.bfloat16)
        outs = [multiply(x, weight, None, poisoned(rows, 192, dtype=torch.float32), tile, done) for _ in range(2)]
        assert_matmul(outs[0], x, wanted)
        assert torch.equal(*outs)
        assert not done.any()


@needs_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "form",
    [
        Form(4096, 4096, 128),
        Form(1024, 2048, 32, zeros=True),
        Form(6144, 4096, 4096),
        Form(4096, 4096, 32),
        Form(28672, 512, 32),  # wide tiles on an H200
        Form(1030, 1024, 32),
        Form(1031, 1024, 32),
        Form(1031, 1024, 32, zeros=True),
        Form(1024, 1000, 32, offsets=True),
    ],
)
@pytest.mark.parametrize("rows", [1, 16, 24, 60, MAX_ROWS])
def test_suited_tiles_multiply_the_same_each_time(
    rows: int, form: Form, dtype: torch.dtype, device: torch.device
) -> None:
    weight, wanted = random_weight(form, device)
    few, x = SkinnyGroupedMatmul(weight, None), normal(rows, form.inputs).to(device, dtype)
    tile = few.tile(rows, dtype)
    if tile is None:
        pytest.skip("the weight is dequantized for so many rows")
    first = few(x, tile)
    exact = x.double() @ wanted.T
    assert float((first.double() - exact).norm() / exact.norm()) < (3e-3 if dtype == torch.bfloat16 else 5e-4)
    assert all(torch.equal(few(x, tile), first) for _ in range(50))


@needs_gpu
@pytest.mark.parametrize(("group", "zeros"), [(128, True), (32, True), (32, False)])
@pytest.mark.parametrize(("rows", "outputs"), [(3, 513), (24, 513), (300, 512)])
def test_graphs_replay_what_was_computed(
    rows: int, outputs: int, group: int, zeros: bool, device: torch.device
) -> None:
    """Of few rows, and of many, for which the weight is dequantized."""
    weights = [random_weight(Form(each, 1024, group, zeros=zeros), device) for each in (outputs, 2048)]
    layers = [GroupedMatmul(weight, None) for weight, _ in weights]
    x = normal(rows, 1024).to(device, torch.bfloat16)
    graph = torch.cuda.CUDAGraph()
    first = [layer(x) for layer in layers]
    with torch.cuda.graph(graph):
        outs = [layer(x) for layer in layers]
    for seed in (0, 1, 0):
        x.copy_(normal(rows, 1024, seed=seed))
        graph.replay()
        assert [torch.equal(out, kept) for out, kept in zip(outs, first, strict=True)] == [seed == 0] * 2
        for out, (_, wanted) in zip(outs, weights, strict=True):
            exact = x.double() @ wanted.T
            assert float((out.double() - exact).norm() / exact.norm()) < 5e-3
