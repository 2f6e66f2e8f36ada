"""Greedy and fp32, over sequences several windows long: transformers' own tokens, and blocks that come back early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.oracle import MATRIX_AXES, ROOMY, Oracle, matrix, options, tiny_oracle
from tests.support.sweep import combinations
from tests.support.windows import ALL_FIT, WINDOWED, WINDOWS, Released
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """Makes each oracle once; a parametrized fixture is made again whenever the next test has another parameter."""

    def make(model: str) -> Oracle:
        family, overrides = WINDOWS[model]
        return tiny_oracle(family, tmp_path_factory.mktemp(family), torch.device("cpu"), **overrides)

    return cache(make)


@pytest.fixture
def oracle(oracles: Callable[[str], Oracle], model: str) -> Oracle:
    return oracles(model)


@pytest.mark.parametrize(("model", *MATRIX_AXES), matrix(WINDOWS))
def test_greedy_tokens_equal_transformers(
    model: str, oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    released = Released()
    made = options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    stats = oracle.check(made, build=released.build)
    if model not in ALL_FIT:
        assert (stats.scheduler.preemptions > 0) == preempted
    assert (stats.core.cached_tokens > 0) == prefix_cache
    assert released.blocks


@pytest.mark.parametrize(("model", "overlap", "prefix_cache"), combinations([*WINDOWS], [False, True], [False, True]))
def test_though_higher_priorities_preempt(model: str, oracle: Oracle, *, overlap: bool, prefix_cache: bool) -> None:
    roomy = options(preempted=False, chunked=True, overlap=overlap, prefix_cache=prefix_cache)
    released = Released()
    stats = oracle.check(replace(roomy, max_rows=3), urgent=3, build=released.build)
    assert stats.scheduler.preemptions > 0
    assert released.blocks


@pytest.mark.parametrize(
    ("model", "overlap", "prefix_cache"),
    # The others read everything.
    combinations([name for name in WINDOWS if name in WINDOWED], [False, True], [False, True]),
)
def test_a_pool_that_holds_no_sequence_as_a_whole(
    model: str, oracle: Oracle, *, overlap: bool, prefix_cache: bool
) -> None:
    """It holds a window and what a step computes."""
    tokens = 4 * (8 if model != "mistral, short" else 4)
    tight = replace(ROOMY, kv_tokens=tokens, token_budget=7, overlap=overlap, prefix_cache=prefix_cache)
    oracle.check(tight)


@pytest.mark.parametrize("model", ["gemma3", "gemma3, two groups that see everything"])
def test_blocks_of_one_group_that_are_lost(model: str, oracle: Oracle) -> None:
    def build(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core = build_core(loaded, options, on_events)
        scheduler, plan = core._scheduler, core._scheduler.schedule

        def losing(drafter):
            for sequence in scheduler._running:
                scheduler.pool.forget(sequence.tables[1][2:3])
            return plan(drafter)

        scheduler.schedule = losing
        return core

    made = options(preempted=False, chunked=True, overlap=False, prefix_cache=True)
    assert oracle.check(replace(made, max_rows=2), build=build).core.cached_tokens > 0
