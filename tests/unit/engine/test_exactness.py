"""Greedy and fp32, the engine gives transformers' own tokens, whatever the family, pool, budget and order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.oracle import MATRIX_AXES, Oracle, matrix, options, tiny_oracle
from tests.support.sweep import combinations, spread
from tests.support.tiny_models import FAMILIES
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """Makes each oracle once; a parametrized fixture is made again whenever the next test has another parameter."""
    return cache(lambda family: tiny_oracle(family, tmp_path_factory.mktemp(family), torch.device("cpu")))


@pytest.fixture
def oracle(oracles: Callable[[str], Oracle], request: pytest.FixtureRequest) -> Oracle:
    return oracles(request.param)


@pytest.mark.parametrize(("oracle", *MATRIX_AXES), matrix(FAMILIES), indirect=["oracle"])
def test_greedy_tokens_equal_transformers(
    oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    stats = oracle.check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs),
    )
    assert (stats.scheduler.preemptions > 0) == preempted
    assert (stats.core.cached_tokens > 0) == prefix_cache


@pytest.mark.parametrize(
    ("oracle", *MATRIX_AXES[1:4]), combinations(FAMILIES, *[(False, True)] * 3), indirect=["oracle"]
)
def test_greedy_tokens_equal_transformers_though_higher_priorities_preempt(
    oracle: Oracle, *, chunked: bool, overlap: bool, prefix_cache: bool
) -> None:
    roomy = options(preempted=False, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache)
    stats = oracle.check(replace(roomy, max_rows=3), urgent=3)
    assert stats.scheduler.preemptions > 0  # for rows: there are blocks for all


# The last number is more than rows and contexts can hold.
@pytest.mark.parametrize(("oracle", "tokens"), spread(FAMILIES, [1, 60, 150, 100_000], each=2), indirect=["oracle"])
def test_a_warmed_up_engine_is_as_a_cold_one(oracle: Oracle, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def warmed(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core, prompts, apply = build_core(loaded, options, on_events), set[int](), Rows.apply
        with monkeypatch.context() as during:
            record = lambda rows, step: prompts.add(sum(step.counts > 1)) or apply(rows, step)  # noqa: E731
            during.setattr(Rows, "apply", record)
            core._runner.warm_up(tokens)
        assert {0, min(core._config.max_rows, tokens // 2)} <= prompts  # many have kernels of their own
        return core

    oracle.check(options(preempted=True, chunked=False, overlap=True, prefix_cache=True), build=warmed)
