"""FlexAttention on a GPU: against the reference and Triton's kernels, and models with ALiBi token for token."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.attention_case import TOLERANCES, Case, Group, make_case, shape_of, textbook
from tests.support.fallback_models import fallback_model
from tests.support.loading import load_model
from tests.support.oracle import Oracle, generate, options, random_prompts
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.flex import FlexAttention
from thothy_ai.kernels.paged import AttentionParams, LayerCache
from thothy_ai.kernels.triton.attention import PagedAttention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # torch 2.11, as it compiles
]
GPU = torch.device("cuda", 0)
LENGTHS = [(1, 117), (1, 1), (1, 36), (1, 33), (1, 340), (70, 70), (3, 200), (160, 310), (2, 2)]
SLOPES = tuple(2.0 ** -(1 + head) for head in range(8))
PARAMS = {
    "plain": AttentionParams(0.21),
    "window": AttentionParams(window=41),
    "chunk": AttentionParams(window=41, chunked=True),
    "soft cap": AttentionParams(soft_cap=0.7),
    "alibi": AttentionParams(slopes=SLOPES),
    "all": AttentionParams(0.4, 50, 0.9, SLOPES),
}


@pytest.fixture(autouse=True)
def _exact_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def written(case: Case) -> Case:
    """With values that are numbers everywhere, as engines have them on a GPU; keys may be NaN."""
    keys, values = case.cache[:2]
    assert values is not None
    return replace(case, cache=LayerCache(keys, values.nan_to_num(300.0)))


@pytest.mark.parametrize(
    ("kind", "kv_heads", "dim", "block_size", "dtype"),
    [  # each is a kernel for decoding and one for prompts, which take some seconds to compile
        ("plain", 8, 64, 16, torch.float32),
        ("window", 2, 128, 32, torch.bfloat16),
        ("chunk", 2, 128, 32, torch.bfloat16),
        ("soft cap", 1, 80, 64, torch.float32),
        ("alibi", 8, 64, 32, torch.bfloat16),
        ("alibi", 2, 128, 32, torch.float32),
        ("all", 2, 512, 32, torch.bfloat16),
    ],
)
def test_mixed_steps(kind: str, kv_heads: int, dim: int, block_size: int, dtype: torch.dtype) -> None:
    case = make_case(
        LENGTHS, heads=8, kv_heads=kv_heads, dim=dim, block_size=block_size, seed=dim, spare=2, groups=[Group(3, 2, 1)]
    )
    there, params = written(case).of(dtype).on(GPU), PARAMS[kind]
    attention = FlexAttention(shape_of(there))
    attention.plan(there.batch)
    atol, rtol = TOLERANCES[dtype]
    for sinks in (None, torch.linspace(-3, 4, 8)):
        out = attention(there.q, there.cache, params, sinks=None if sinks is None else sinks.to(GPU))
        expected = textbook(case.of(dtype), params, sinks)
        torch.testing.assert_close(out.cpu().double(), expected, atol=10 * atol, rtol=10 * rtol)


@pytest.mark.parametrize("part", [0, 1])
def test_layers_side_by_side_in_a_block(part: int) -> None:
    case = make_case(LENGTHS, heads=8, kv_heads=2, dim=64, block_size=32, seed=5)
    there, params = written(case).of(torch.bfloat16).on(GPU).side_by_side(part, 2, 30.0), PARAMS["window"]
    attention = FlexAttention(shape_of(there))
    attention.plan(there.batch)
    out = attention(there.q, there.cache, params).cpu().double()
    atol, rtol = TOLERANCES[torch.bfloat16]
    torch.testing.assert_close(out, textbook(case.of(torch.bfloat16), params), atol=10 * atol, rtol=10 * rtol)


def test_a_broken_token_spoils_no_row_that_does_not_see_it() -> None:
    """Though it lies in the same tiles of queries and keys."""
    case = make_case([(1, 90), (1, 117), (70, 70), (160, 310)], heads=8, kv_heads=2, dim=64, block_size=32, seed=6)
    there = written(case).with_broken_tokens({1: 100, 2: 41, 3: 200}).on(GPU)
    attention = FlexAttention(shape_of(there))
    attention.plan(there.batch)
    out, expected = attention(there.q, there.cache).cpu().double(), textbook(case)
    seen = [1, *range(2 + 41, 72), *range(72 + 50, 232)]
    sound = sorted({*range(232)} - {*seen})
    atol, rtol = TOLERANCES[torch.float32]
    torch.testing.assert_close(out[sound], expected[sound], atol=10 * atol, rtol=10 * rtol)
    assert out[seen].isnan().all()


def test_triton_computes_the_same() -> None:
    """An oracle that is neither ours nor slow."""
    case = written(make_case(LENGTHS, heads=8, kv_heads=2, dim=128, block_size=32, seed=1)).of(torch.bfloat16).on(GPU)
    attentions = FlexAttention(shape_of(case)), PagedAttention(shape_of(case))
    for params in (AttentionParams(), AttentionParams(window=41), AttentionParams(soft_cap=2.0)):
        results = []
        for attention in attentions:
            attention.plan(case.batch)
            results.append(attention(case.q, case.cache, params))
        torch.testing.assert_close(*results, atol=1.5e-2, rtol=1e-2)


@pytest.fixture(scope="module", params=["bloom", "mpt"])
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return _oracle(request.param, tmp_path_factory.mktemp(request.param))


def _oracle(kind: str, folder: Path) -> Oracle:
    """Heads of 16, the smallest that a GPU's tensor cores multiply."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = fallback_model(kind, folder, hidden_size=96)
    loaded = load_model(model, device=GPU, dtype=torch.float32)
    prompts = random_prompts(loaded.config.vocab_size)
    return Oracle(loaded, prompts, generate(model, prompts, 12, GPU))


@pytest.mark.parametrize(("pressed", "ahead", "graphs"), list(itertools.product([False, True], repeat=3)))
def test_greedy_tokens_equal_transformers(oracle: Oracle, *, pressed: bool, ahead: bool, graphs: bool) -> None:
    """`pressed`: preempted and chunked; `ahead`: with overlap and the prefix cache."""
    model, cores = oracle.loaded.model, list[EngineCore]()
    assert model.operations.attention is FlexAttention
    assert model.captures

    def build(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        cores.append(build_core(loaded, options, on_events))
        return cores[-1]

    chosen = options(preempted=pressed, chunked=pressed, overlap=ahead, prefix_cache=ahead, graphs=graphs)
    stats = oracle.check(replace(chosen, block_size=16), build=build)
    assert (stats.scheduler.preemptions > 0) == pressed
    assert (stats.core.cached_tokens > 0) == ahead
    assert (cores[0]._runner.replays > 0) == graphs
