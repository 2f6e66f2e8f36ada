"""Greedy and fp32, a request with an adapter gets the tokens of a model with the adapter merged into its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.support.adapter_oracle import AdapterOracle, adapter_oracle
from tests.support.oracle import MATRIX_AXES, matrix, options
from tests.support.tiny_models import FAMILIES

MIXED = ("", "one", "two", "two", "one", "")


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], AdapterOracle]:
    return cache(lambda family: adapter_oracle(family, tmp_path_factory.mktemp(family)))


@pytest.mark.parametrize(("family", *MATRIX_AXES), matrix(FAMILIES[:1]))
def test_tokens_equal_those_of_merged_weights(
    family: str, oracles, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    stats = oracles(family).check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs), MIXED
    )
    assert stats.scheduler.preemptions == 0 or preempted
    assert stats.adapters.copies == 2


def test_preempted_sequences_keep_their_adapter(oracles) -> None:
    stats = oracles("llama").check(options(preempted=True, chunked=True, overlap=True, prefix_cache=True), ("one",))
    assert stats.scheduler.preemptions > 0


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_every_family_takes_adapters(family: str, oracles) -> None:
    oracles(family).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True), MIXED)
