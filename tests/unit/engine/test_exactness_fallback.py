"""Greedy and fp32, decoders that run through transformers give transformers' own tokens, as families here do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.fallback_models import fallback_oracle
from tests.support.oracle import Oracle, options
from tests.support.sweep import DEEP, spread
from thothy_ai.engine.models.fallback import CHECKED, ThroughTransformers

POINTS = {
    "plain": {"preempted": False, "chunked": False, "overlap": False, "prefix_cache": False},
    "all": {"preempted": True, "chunked": True, "overlap": True, "prefix_cache": True},
    "preempted": {"preempted": True, "chunked": False, "overlap": False, "prefix_cache": True},
    "chunked": {"preempted": False, "chunked": True, "overlap": True, "prefix_cache": False},
}


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    """Makes each oracle once; a parametrized fixture is made again whenever the next test has another parameter."""
    return cache(lambda kind: fallback_oracle(kind, tmp_path_factory.mktemp(kind), torch.device("cpu")))


@pytest.fixture(params=CHECKED)
def oracle(oracles: Callable[[str], Oracle], request: pytest.FixtureRequest) -> Oracle:
    return oracles(request.param)


@pytest.mark.parametrize(("oracle", "point"), spread(CHECKED, [*POINTS], each=2), indirect=["oracle"])
def test_greedy_tokens_equal_transformers(oracle: Oracle, point: str) -> None:
    assert isinstance(oracle.loaded.config.architecture, ThroughTransformers)
    axes = POINTS[point]
    stats = oracle.check(options(**axes))
    assert (stats.scheduler.preemptions > 0) == axes["preempted"]
    assert (stats.core.cached_tokens > 0) == axes["prefix_cache"]


def test_answers_differ_from_each_other(oracle: Oracle) -> None:
    """Otherwise equality would say little: of the prompts, and of the tokens of an answer."""
    assert len(set(oracle.expected)) == len(oracle.expected)
    assert len(set(oracle.expected[1])) > 2


@pytest.mark.parametrize("oracle", CHECKED if DEEP else CHECKED[::2], indirect=True)
def test_higher_priorities_preempt(oracle: Oracle) -> None:
    roomy = options(preempted=False, chunked=True, overlap=True, prefix_cache=True)
    stats = oracle.check(replace(roomy, max_rows=3), urgent=3)
    assert stats.scheduler.preemptions > 0
