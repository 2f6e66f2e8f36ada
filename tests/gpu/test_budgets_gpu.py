"""KV budgets on a GPU: in fp32 the tokens of a transformers model whose queries see the kept tokens only, with graphs
too; and what the importance of blocks costs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from tests.support.budget_oracle import ROOMY, budget_oracle, check, check_in_small_pool
from tests.support.oracle import Oracle
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.reference import importance as reference
from thothy_ai.kernels.triton import importance as triton

pytestmark = pytest.mark.gpu
AXES = ("preempted", "chunked", "overlap", "graphs")
GPU = torch.device("cuda", 0)


@pytest.fixture(scope="module", params=("llama", "qwen3", "glm4", "qwen3_moe"))
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    return budget_oracle(request.param, tmp_path_factory.mktemp(request.param), GPU)


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_queries_see_the_kept_tokens_only(
    oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, graphs: bool
) -> None:
    stats = check(oracle, preempted=preempted, chunked=chunked, overlap=overlap, graphs=graphs)
    assert (stats.core.replayed_steps > 0) == graphs


def test_steps_with_budgets_are_replayed_as_others_are(oracle: Oracle) -> None:
    options = replace(ROOMY, graphs=True, overlap=True)
    kept = oracle.check(options)
    longer = sum(len(prompt) > budget for prompt, budget in zip(oracle.prompts, oracle.budgets, strict=True) if budget)
    assert longer == 3
    assert kept.core.replayed_steps >= len(oracle.expected[0]) - 1


def test_a_text_with_a_budget_can_be_longer_than_the_pool(oracle: Oracle) -> None:
    check_in_small_pool(oracle, graphs=True)


@pytest.mark.parametrize("shape", [(32, 8, 128), (16, 2, 64)])
def test_importance_is_the_same_at_every_launch(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator(GPU).manual_seed(3)
    keys, values = torch.randn(2, 600, *shape, generator=generator, device=GPU, dtype=torch.bfloat16)
    cache = LayerCache(keys, values)
    blocks = torch.randperm(600, generator=generator, device=GPU, dtype=torch.int32)[:300]
    runs = []
    for _ in range(20):
        runs.append(torch.zeros(len(blocks), device=GPU))
        triton.add_importance(cache, blocks, runs[-1])
    assert all(torch.equal(run, runs[0]) for run in runs)
    alone = torch.zeros(1, device=GPU)
    triton.add_importance(cache, blocks[7:8], alone)
    assert torch.equal(alone, runs[0][7:8])
    wanted = torch.zeros(len(blocks), device=GPU)
    reference.add_importance(cache, blocks, wanted)
    torch.testing.assert_close(runs[0], wanted, rtol=1e-4, atol=0)
