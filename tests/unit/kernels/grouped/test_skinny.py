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
from thothy_ai.kernels.triton.grouped import GroupedMatmul
from thothy_ai.kernels.triton.grouped.skinny import SkinnyMatmul, counters, multiply
from thothy_ai.kernels.triton.grouped.tiles import MAX_ROWS, GroupedTile

WHOLE = GroupedTile(outputs=64, tokens=64, split=1, stages=3)
SPLIT = WHOLE._replace(tokens=16, split=2)
TILES = pytest.mark.parametrize("tile", [WHOLE, SPLIT], ids=["whole", "split"])
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


@TILES
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_weight(
    name: str, dtype: torch.dtype, tile: GroupedTile, device: torch.device, poisoned: Poisoned, margins: Margins
) -> None:
    """What lies around rows, words, scales and zeros is never touched."""
    weight, wanted = random_weight(FORMS[name], device)
    x = margins.around(normal(5, weight.inputs).to(device, dtype))
    bias = margins.around(normal(weight.outputs, seed=2).to(device))
    out = poisoned(5, weight.outputs, dtype=torch.float32)
    multiply(x, guarded(weight, margins), bias, out, tile, counters(weight))
    assert_matmul(out, x, wanted, bias)


@TILES
@pytest.mark.parametrize("rows", [1, 7, 16, 33, 61])
def test_any_number_of_rows(rows: int, tile: GroupedTile, device: torch.device, poisoned: Poisoned) -> None:
    tile = tile._replace(tokens=max(tile.tokens, triton.next_power_of_2(rows)))
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x = normal(rows, 512).to(device, torch.bfloat16)
    out = poisoned(rows, 64, dtype=torch.float32)
    multiply(x, weight, None, out, tile, counters(weight))
    assert_matmul(out, x, wanted)


@pytest.mark.parametrize("dtype", HALVES)
def test_results_have_the_type_of_the_activations(dtype: torch.dtype, device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x, out = normal(3, 512).to(device, dtype), poisoned(3, 64, dtype=dtype)
    assert multiply(x, weight, None, out, SPLIT, counters(weight)) is out
    torch.testing.assert_close(out.double() / 10, x.double() @ wanted.T / 10, **TOLERANCES[dtype])


@pytest.mark.parametrize("scale_type", [torch.bfloat16, torch.float32])
def test_scales_of_other_types(scale_type: torch.dtype, device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(FORMS["groups of 128"], device, scale_type)
    x, out = normal(3, 512).to(device, torch.float16), poisoned(3, 64, dtype=torch.float32)
    multiply(x, weight, None, out, SPLIT, counters(weight))
    assert_matmul(out, x, wanted)


def test_rows_of_a_view(device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(FORMS["groups of 128"], device)
    x = normal(4, 1024).to(device, torch.float16)[:, 512:]
    out = poisoned(4, 64, dtype=torch.float32)
    multiply(x, weight, None, out, SPLIT, counters(weight))
    assert_matmul(out, x, wanted)


def test_counters_serve_one_matmul_after_another(device: torch.device, poisoned: Poisoned) -> None:
    weight, wanted = random_weight(Form(192, 1024, 128), device)
    done = counters(weight)
    for rows in (16, 3, 16):
        x = normal(rows, 1024, seed=rows).to(device, torch.bfloat16)
        outs = [multiply(x, weight, None, poisoned(rows, 192, dtype=torch.float32), SPLIT, done) for _ in range(2)]
        assert_matmul(outs[0], x, wanted)
        assert torch.equal(*outs)
        assert not done.any()


@needs_gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", [Form(4096, 4096, 128), Form(1024, 2048, 32, zeros=True), Form(6144, 4096, 4096)])
@pytest.mark.parametrize("rows", [1, 16, 60, MAX_ROWS])
def test_suited_tiles_multiply_the_same_each_time(
    rows: int, form: Form, dtype: torch.dtype, device: torch.device
) -> None:
    weight, wanted = random_weight(form, device)
    few, x = SkinnyMatmul(weight, None), normal(rows, form.inputs).to(device, dtype)
    tile = few.tile(rows, dtype)
    if tile is None:
        pytest.skip("the weight is dequantized for so many rows")
    first = few(x, tile)
    exact = x.double() @ wanted.T
    assert float((first.double() - exact).norm() / exact.norm()) < (3e-3 if dtype == torch.bfloat16 else 5e-4)
    assert all(torch.equal(few(x, tile), first) for _ in range(50))


@needs_gpu
@pytest.mark.parametrize("rows", [3, 24, 300])
def test_graphs_replay_what_was_computed(rows: int, device: torch.device) -> None:
    """Of few rows, and of many, for which the weight is dequantized."""
    layers = [GroupedMatmul(random_weight(Form(n, 1024, 128, zeros=True), device)[0], None) for n in (512, 2048)]
    x = normal(rows, 1024).to(device, torch.bfloat16)
    wanted = [layer(x) for layer in layers]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [layer(x) for layer in layers]
    for seed in (0, 1, 0):
        x.copy_(normal(rows, 1024, seed=seed))
        graph.replay()
        if not seed:
            assert all(torch.equal(out, want) for out, want in zip(outs, wanted, strict=True))
        else:
            assert not any(torch.equal(out, want) for out, want in zip(outs, wanted, strict=True))
