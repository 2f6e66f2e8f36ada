"""Attention to latents, which are a part of keys: by both implementations, against the textbook formula in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.support.attention_case import TOLERANCES, Case, Group, make_case, shape_of, textbook
from tests.support.decode_case import GROUPS, IN_GROUPS, TUNING
from tests.support.decode_case import check as check_decode
from thothy_ai.kernels.paged import Attention, AttentionParams
from thothy_ai.kernels.reference.attention import PagedAttention as Reference
from thothy_ai.kernels.triton.attention.paged_attention import PagedAttention

MIXED = [(1, 17), (1, 40), (1, 3), (1, 33), (7, 7), (1, 20), (16, 31), (2, 2)]
PARAMS = AttentionParams(scale=0.05)
SIZES = [(5, 20, 6), (16, 256, 64), (3, 512, 64), (40, 32, 16), (66, 16, 8), (37, 16, 8)]  # heads, latent, beside it
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="too large for the interpreter")


def latents(
    lengths: list[tuple[int, int]],
    heads: int,
    latent: int,
    rest: int,
    *,
    block_size: int = 16,
    groups: Sequence[Group] = (),
) -> Case:
    case = make_case(
        lengths, heads=heads, kv_heads=1, dim=latent + rest, block_size=block_size, seed=heads, spare=3, groups=groups
    )
    return case.with_latents(latent)


def check(kind: type[Reference | PagedAttention], case: Case, device: torch.device) -> None:
    there, tokens = case.on(device), sum(case.batch.query_lens)
    attention: Attention = kind(shape_of(there))
    attention.plan(there.batch)
    out = attention(there.q, there.cache, PARAMS).cpu()
    assert out.shape == (*case.q.shape[:2], case.cache.heads.latent)
    atol, rtol = TOLERANCES[case.q.dtype]
    torch.testing.assert_close(out[:tokens].double(), textbook(case, PARAMS)[:tokens], atol=atol, rtol=rtol)


@pytest.mark.parametrize("kind", [Reference, PagedAttention])
@pytest.mark.parametrize(("heads", "latent", "rest"), SIZES)
def test_mixed_steps(
    kind: type[Reference | PagedAttention], heads: int, latent: int, rest: int, device: torch.device
) -> None:
    check(kind, latents(MIXED, heads, latent, rest), device)


@pytest.mark.parametrize("block_size", [3, 32])
def test_blocks_of_other_sizes(block_size: int, device: torch.device) -> None:
    check(PagedAttention, latents(MIXED, 6, 32, 8, block_size=block_size), device)


@pytest.mark.parametrize("programs", [1, 6, 40])
def test_groups_are_cut_anywhere(programs: int, device: torch.device) -> None:
    case = latents(IN_GROUPS, 6, 32, 8, groups=GROUPS)
    check_decode(case, device, replace(TUNING, programs=programs), PARAMS)


def test_a_broken_token_reaches_only_queries_that_see_it(device: torch.device) -> None:
    """As it is cached when its latent came out as NaN: zeros, and NaN behind them."""
    case = latents([(1, 20), (12, 20)], 4, 16, 8).on(device)
    table = case.batch.block_tables[0][case.batch.rows[1].long()]
    case.cache.keys[table[1], 0] = torch.tensor([0.0] * 16 + [torch.nan] * 8, device=device)  # position 16
    attention = PagedAttention(shape_of(case))
    attention.plan(case.batch)
    broken = attention(case.q, case.cache, PARAMS).isnan().any(-1).any(-1).cpu()
    assert broken[:13].tolist() == [False] * 9 + [True] * 4  # queries 8 to 19 are at positions of the same numbers


@needs_gpu
@pytest.mark.parametrize(("heads", "latent", "rest"), [(20, 512, 64), (16, 512, 64), (128, 512, 64), (32, 256, 64)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_published_sizes(heads: int, latent: int, rest: int, dtype: torch.dtype, device: torch.device) -> None:
    lengths = [(1, 600 + 13 * index) for index in range(40)] + [(300, 300), (70, 1000), (33, 40)]
    groups = [Group(first, 2, 30) for first in range(0, 20, 2)]
    groups = groups if heads == 16 else []
    check(PagedAttention, latents(lengths, heads, latent, rest, groups=groups).of(dtype), device)
