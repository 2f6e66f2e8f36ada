"""Adapters on a GPU: tokens of merged weights in fp32, also under graphs, with copies beside steps, and in bfloat16."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.adapter_oracle import AdapterOracle, adapter_oracle
from tests.support.oracle import options
from thothy_ai.engine.api.options import EngineOptions

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda", 0)
AXES = ("preempted", "chunked", "overlap", "prefix_cache", "graphs")
MIXED = ("", "one", "two", "two", "one", "")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> AdapterOracle:
    torch.backends.cuda.matmul.allow_tf32 = False
    return adapter_oracle("llama", tmp_path_factory.mktemp("llama"), device=GPU)


@pytest.mark.parametrize(AXES, list(itertools.product([False, True], repeat=len(AXES))))
def test_tokens_equal_those_of_merged_weights(
    oracle: AdapterOracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    point = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    stats = oracle.check(point, MIXED)
    assert stats.adapters.copies == 2
    assert (stats.core.replayed_steps > 0) == graphs
    oracle.check(point, ("",))  # steps without adapters, beside those that are loaded


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "qwen3_moe", "qwen3_next", "falcon_h1", "cohere"])
def test_families(family: str, tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle(family, tmp_path, device=GPU)
    oracle.check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True, graphs=True), MIXED)


def test_more_adapters_than_slots(tmp_path: Path) -> None:
    """Copies overwrite slots that earlier steps have read."""
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle("llama", tmp_path, {str(number): {"r": 4} for number in range(7)}, device=GPU)
    roomy: EngineOptions = options(preempted=False, chunked=False, overlap=True, prefix_cache=True, graphs=True)
    for _ in range(5):
        stats = oracle.check(replace(roomy, adapter_slots=2, max_rows=2), tuple("0123456"))
        assert stats.adapters.copies >= 7


@pytest.mark.parametrize("ranks", [{"one": {"r": 1}, "two": {"r": 256}}, {"one": {"r": 17}, "two": {"r": 64}}], ids=str)
def test_ranks(ranks: dict[str, dict[str, int]], tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = adapter_oracle("llama", tmp_path, ranks, device=GPU)
    point = options(preempted=False, chunked=True, overlap=True, prefix_cache=True, graphs=True)
    oracle.check(replace(point, adapter_rank=256), MIXED)
