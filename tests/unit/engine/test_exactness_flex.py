"""Greedy and fp32, families give transformers' tokens with `--attention flex`, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.loading import load_model
from tests.support.oracle import Oracle, options, tiny_oracle
from tests.support.sweep import spread
from thothy_ai.kernels.flex import FlexAttention

CPU = torch.device("cpu")
# Soft caps, sinks, heads that differ, states, chunks
FAMILIES = ("llama", "gemma2", "gpt_oss", "gemma4_text", "falcon_h1", "llama4_text")
PRESSED = {"preempted": True, "chunked": True, "overlap": True, "prefix_cache": True}
ROOMY = {"preempted": False, "chunked": False, "overlap": False, "prefix_cache": False}


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    def made(family: str) -> Oracle:
        folder = tmp_path_factory.mktemp(family)
        oracle = tiny_oracle(family, folder, CPU)
        model = next(folder.rglob("config.json")).parent
        return replace(oracle, loaded=load_model(model, device=CPU, dtype=torch.float32, flex=True))

    return cache(made)


@pytest.mark.parametrize(("family", "axes"), spread(FAMILIES, [PRESSED, ROOMY], each=1))
def test_greedy_tokens_equal_transformers(family: str, axes: dict[str, bool], oracles: Callable[[str], Oracle]) -> None:
    oracle = oracles(family)
    assert oracle.loaded.model.operations.attention is FlexAttention
    stats = oracle.check(options(**axes))
    assert (stats.scheduler.preemptions > 0) == axes["preempted"]
