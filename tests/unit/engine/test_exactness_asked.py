"""Penalties, biases, minimum and stop tokens give transformers' own tokens, and its log-probabilities, in fp32."""

from __future__ import annotations

import pytest
import torch

from tests.support.asked import Asked
from tests.support.oracle import MATRIX_AXES, options
from tests.support.sweep import combinations


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked.of("qwen3", tmp_path_factory.mktemp("asked"), torch.device("cpu"))


def test_the_parameters_matter(asked: Asked) -> None:
    ends = [each.stopped for each in asked.expected]
    lengths = [len(each.tokens) for each in asked.expected]
    assert any(ends)
    assert any(7 <= length < 23 for length in lengths)
    assert len({each.tokens for each in asked.expected}) == len(asked.expected)


@pytest.mark.parametrize(MATRIX_AXES, combinations(*[(False, True)] * len(MATRIX_AXES)))
def test_what_requests_ask_for_is_as_in_transformers(
    asked: Asked, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool
) -> None:
    stats = asked.check(
        options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache, graphs=graphs)
    )
    assert (stats.scheduler.preemptions > 0) == preempted
