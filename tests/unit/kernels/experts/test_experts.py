"""Experts in Triton against their reference, in every format, whatever the tile."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from tests.support.expert_case import FORMATS, ExpertCase, around, make_case
from tests.support.layer_checks import TYPES
from tests.support.margins import Margins
from thothy_ai.kernels.experts import CLAMPED_SWIGLU, GELU_TANH, SILU, SQUARED_RELU, ExpertActivation
from thothy_ai.kernels.reference.experts import Experts as Reference
from thothy_ai.kernels.triton.experts import Experts
from thothy_ai.kernels.triton.experts.down import down
from thothy_ai.kernels.triton.experts.experts import add_up
from thothy_ai.kernels.triton.experts.gate_up import gate_up
from thothy_ai.kernels.triton.experts.operands import Operand
from thothy_ai.kernels.triton.experts.sort import sort_by_expert
from thothy_ai.kernels.triton.experts.tiles import ExpertTile, ExpertTiles

FEW = ExpertTile(16, 64, 64, 2, 4, weights_first=True)
MANY = ExpertTile(64, 64, 64, 3, 4, weights_first=False)
SHORT = ExpertTile(32, 64, 64, 3, 4, weights_first=False, short=16)
TILES = pytest.mark.parametrize("tile", [FEW, MANY, SHORT], ids=["few", "many", "short"])
ACTIVATIONS = pytest.mark.parametrize(
    "activation", [SILU, CLAMPED_SWIGLU, GELU_TANH, SQUARED_RELU], ids=["silu", "clamped", "gelu", "relu2"]
)
APART = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}  # fp8 and GPUs' tensor cores: 1e-2 at least
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def assert_near(got: Tensor, wanted: Tensor, apart: float) -> None:
    assert bool(got.isfinite().all())
    assert float((got.double().cpu() - wanted.double().cpu()).norm() / wanted.double().cpu().norm()) < apart


def reference(case: ExpertCase, activation: ExpertActivation) -> Tensor:
    return Reference(case.weights, activation)(case.x, case.ids, case.shares)


@TILES
@ACTIVATIONS
@pytest.mark.parametrize("form", FORMATS)
def test_as_the_reference(
    form: str, activation: ExpertActivation, tile: ExpertTile, device: torch.device, margins: Margins
) -> None:
    case = make_case(form, 23, device=device, biased=activation is CLAMPED_SWIGLU, gated=activation is not SQUARED_RELU)
    wanted = reference(case, activation)
    case = around(case, margins)
    got = Experts(case.weights, activation, ExpertTiles(tile, tile))(case.x, case.ids, case.shares)
    assert_near(got, wanted, 1e-2 if form == "fp8" else 1e-5)


@TILES
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", TYPES)
def test_types(form: str, dtype: torch.dtype, tile: ExpertTile, device: torch.device) -> None:
    case = make_case(form, 11, dtype=dtype, device=device)
    got = Experts(case.weights, SILU, ExpertTiles(tile, tile))(case.x, case.ids, case.shares)
    assert got.dtype == dtype
    assert_near(got, case.wanted(SILU), 0.05 if form == "fp8" else APART[dtype])


@pytest.mark.parametrize(("form", "hidden", "inner"), [("plain", 40, 24), ("fp8", 80, 48), ("mxfp4", 96, 160)])
@TILES
def test_sizes_need_not_fill_tiles(
    form: str, hidden: int, inner: int, tile: ExpertTile, device: torch.device, margins: Margins
) -> None:
    case = make_case(form, 9, hidden=hidden, inner=inner, top_k=3, device=device)
    wanted = reference(case, SILU)
    case = around(case, margins)
    got = Experts(case.weights, SILU, ExpertTiles(tile, tile))(case.x, case.ids, case.shares)
    assert_near(got, wanted, 1e-2 if form == "fp8" else 1e-5)


@TILES
def test_all_is_written_and_nothing_else(tile: ExpertTile, device: torch.device, margins: Margins) -> None:
    case = make_case("plain", 23, device=device)
    by_expert = sort_by_expert(case.ids, 6, tile.tokens)
    nan = partial(torch.full, fill_value=torch.nan, device=device)
    inner, made = margins.around(nan((46, 32))), margins.around(nan((46, 64)))
    gate_up(case.x, Operand.of(case.weights.gate_up, 2), None, SILU, by_expert, tile, inner)
    down(inner, Operand.of(case.weights.down, 1), None, case.shares, by_expert, tile, made)
    assert_near(add_up(made, 2), case.wanted(SILU), 1e-5)


def test_a_token_s_results_do_not_depend_on_the_others(device: torch.device) -> None:
    case = make_case("plain", 40, dtype=torch.bfloat16, device=device)
    experts = Experts(case.weights, SILU, ExpertTiles(FEW, FEW))
    whole = experts(case.x, case.ids, case.shares)
    for part in (slice(0, 1), slice(7, 30)):
        alone = experts(case.x[part], case.ids[part], case.shares[part])
        assert torch.equal(alone, whole[part])


@pytest.mark.parametrize("tokens", [1, 4, 150])
def test_suited_tiles(tokens: int, device: torch.device) -> None:
    case = make_case("plain", tokens, device=device)
    assert_near(Experts(case.weights, SILU)(case.x, case.ids, case.shares), case.wanted(SILU), 1e-5)


def test_no_tokens(device: torch.device) -> None:
    case = make_case("plain", 1, device=device)
    assert Experts(case.weights, SILU)(case.x[:0], case.ids[:0], case.shares[:0]).shape == (0, 64)


@needs_gpu
@pytest.mark.parametrize("form", FORMATS)
def test_a_graph_follows_what_it_is_given(form: str, device: torch.device) -> None:
    """Other experts than at its capture, thus other tiles."""
    case, other = (make_case(form, tokens, experts=12, dtype=torch.bfloat16, device=device) for tokens in (64, 65))
    experts = Experts(case.weights, SILU)
    experts(case.x, case.ids, case.shares)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = experts(case.x, case.ids, case.shares)
    for source in (case, other):
        wanted = experts(source.x[:64], source.ids[:64], source.shares[:64])
        for mine, theirs in zip((case.x, case.ids, case.shares), (source.x, source.ids, source.shares), strict=True):
            mine.copy_(theirs[:64])
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, wanted)
