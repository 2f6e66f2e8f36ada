"""Decode attention in half precision, over fp8 caches, and beside broken tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.attention_case import make_case, textbook
from tests.support.decode_case import GROUPS, IN_GROUPS, TOLERANCES, TUNING, attend, check


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fp8", [False, True])
def test_half_precision_and_fp8_caches(dtype: torch.dtype, fp8: bool, device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=32, block_size=16, seed=8, groups=GROUPS).of(dtype)
    check(case.with_fp8_cache() if fp8 else case, device)


def test_queries_far_outside_float16_over_an_fp8_cache(device: torch.device) -> None:
    """Each query head in a range of its own, beside others in the tile."""
    case = make_case(IN_GROUPS, heads=6, kv_heads=2, dim=32, block_size=16, seed=12, groups=GROUPS).with_fp8_cache()
    factors = torch.tensor([1e6, 1e-6, 1.0, 1e30, 1e-38, 0.0])[:, None]
    check(replace(case, q=(case.q * factors).bfloat16()), device)


@pytest.mark.parametrize("fp8", [False, True], ids=["plain", "fp8"])
@pytest.mark.parametrize("programs", [1, 24])
def test_a_broken_token_spoils_its_own_sequence_only(programs: int, fp8: bool, device: torch.device) -> None:
    """Be it computed in one slot or in several, beside others of its group."""
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=16, block_size=16, seed=14, groups=GROUPS)
    case = case.with_fp8_cache() if fp8 else case
    broken = case.with_broken_tokens({2: 63, 7: 20})
    out = attend(broken.on(device), replace(TUNING, programs=programs)).cpu().double()
    sound = [0, 1, 3, 4, 5, 6]
    torch.testing.assert_close(out[sound], textbook(case)[sound], atol=3e-6, rtol=1e-5)
    assert out[[2, 7]].isnan().all()


@pytest.mark.parametrize("factor", [2.0**13, 2.0**-8])
def test_large_and_small_values_in_an_fp8_cache(factor: float, device: torch.device) -> None:
    """Weights become float16 with them, and lose nothing."""
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=32, block_size=16, seed=13, groups=GROUPS).with_fp8_cache()
    case = replace(case, q=case.q.bfloat16())
    assert case.cache.value_scales is not None
    scaled = case.cache._replace(value_scales=case.cache.value_scales * factor)
    out = attend(replace(case, cache=scaled).on(device)).cpu().double() / factor
    atol, rtol = TOLERANCES[torch.bfloat16]
    torch.testing.assert_close(out, textbook(case), atol=atol, rtol=rtol)
