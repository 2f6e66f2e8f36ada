"""The reference attention against the textbook formula in float64, over caches full of NaN between what was written."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tests.support.attention_case import Case, Group, make_case, textbook
from thothy_ai.kernels.paged import AttentionParams
from thothy_ai.kernels.reference.attention import paged_attention

SCALED = AttentionParams(scale=0.21)


def check(case: Case, params: AttentionParams = SCALED, sinks: Tensor | None = None) -> None:
    out = paged_attention(case.q, case.cache, case.batch, params, sinks)
    assert out.dtype == case.q.dtype
    torch.testing.assert_close(out.double(), textbook(case, params, sinks), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 8), (9, 3, 16), (5, 1, 6), (8, 2, 33)])
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_mixed_steps(heads: int, kv_heads: int, dim: int, block_size: int) -> None:
    lengths = [(1, 17), (1, 1), (1, 5), (1, 33), (7, 7), (3, 20), (16, 31), (2, 2)]
    check(make_case(lengths, heads=heads, kv_heads=kv_heads, dim=dim, block_size=block_size, seed=block_size))


@pytest.mark.parametrize("seed", range(6))
def test_random_decode_batches(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [(1, rng.choice([1, 2, 15, 16, 17, rng.randint(1, 90)])) for _ in range(rng.randint(1, 25))]
    check(make_case(lengths, heads=6, kv_heads=2, dim=8, block_size=rng.choice([2, 4, 16]), seed=seed))


def test_one_query_rows_may_stand_among_the_prefills() -> None:
    case = make_case([(1, 9), (5, 9), (1, 14)], heads=4, kv_heads=2, dim=8, block_size=4, seed=3)
    assert case.batch.num_decode == 1
    check(case)


def test_groups_share_blocks() -> None:
    groups = [Group(first=0, size=2, blocks=2), Group(first=3, size=3, blocks=1)]
    lengths = [(1, 12), (1, 9), (1, 7), (1, 5), (1, 15), (1, 6), (4, 12)]
    check(make_case(lengths, heads=4, kv_heads=2, dim=8, block_size=4, seed=5, groups=groups))


def test_fp8_cache() -> None:
    case = make_case([(1, 12), (1, 3), (4, 12)], heads=4, kv_heads=2, dim=8, block_size=4, seed=9).with_fp8_cache()
    assert case.cache.keys.dtype == torch.float8_e4m3fn
    check(case)


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("window", [1, 5, 16, 40])
@pytest.mark.parametrize("soft_cap", [None, 0.7])
@pytest.mark.parametrize("chunked", [False, True])
def test_windows_and_soft_caps(soft_cap: float | None, window: int, block_size: int, *, chunked: bool) -> None:
    lengths = [(1, 17), (1, 1), (1, 5), (1, 33), (1, 34), (7, 7), (3, 20), (16, 31), (2, 2)]
    case = make_case(lengths, heads=4, kv_heads=2, dim=8, block_size=block_size, seed=window)
    windowed = AttentionParams(0.21, window, soft_cap, chunked=chunked)
    for params in (windowed, AttentionParams(soft_cap=soft_cap)):
        check(case, params)
    check(case.with_freed_blocks(window, chunked=chunked), windowed)


@pytest.mark.parametrize("params", [AttentionParams(), AttentionParams(window=9), AttentionParams(soft_cap=2.0)])
def test_sinks(params: AttentionParams) -> None:
    lengths = [(1, 17), (1, 1), (1, 33), (7, 7), (3, 20), (16, 31)]
    case = make_case(lengths, heads=6, kv_heads=2, dim=8, block_size=4, seed=4)
    check(case, params, torch.tensor([-30.0, -1.0, 0.0, 1.0, 4.0, 40.0]))


def test_padded_rows_come_back_as_zeros() -> None:
    case = make_case([(1, 12), (4, 12)], heads=4, kv_heads=2, dim=8, block_size=4, seed=6, spare=3)
    out = paged_attention(case.q, case.cache, case.batch)
    assert torch.equal(out[5:], torch.zeros(3, 4, 8))
    check(case)


def test_bfloat16() -> None:
    case = make_case([(1, 40), (1, 3), (9, 30)], heads=6, kv_heads=2, dim=16, block_size=16, seed=7)
    half = case.of(torch.bfloat16)
    out = paged_attention(half.q, half.cache, half.batch)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), textbook(half), atol=1.5e-2, rtol=1e-2)


def test_a_batch_of_no_sequences() -> None:
    case = make_case([], heads=4, kv_heads=2, dim=8, block_size=4, seed=1)
    assert paged_attention(case.q, case.cache, case.batch).shape == (0, 4, 8)
