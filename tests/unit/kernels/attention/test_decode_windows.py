"""Decode attention with windows, sinks, soft caps and scales, against the textbook formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.attention_case import make_case, textbook
from tests.support.decode_case import GROUPS, IN_GROUPS, TUNING, attend, check
from thothy_ai.kernels.paged import AttentionParams


@pytest.mark.parametrize(
    ("programs", "window", "chunked"),
    [
        *((programs, window, False) for programs, window in ((2, 33), (6, 1), (6, 16), (6, 64), (40, 7), (40, 500))),
        *((programs, window, True) for programs, window in ((2, 33), (6, 16), (40, 7))),
    ],
)
def test_windows_begin_anywhere(programs: int, window: int, device: torch.device, *, chunked: bool) -> None:
    """In a prefix that members of a group see different parts of, or none; in tiles of a sequence alone."""
    case = make_case(IN_GROUPS, heads=2, kv_heads=1, dim=16, block_size=16, seed=window, groups=GROUPS)
    params = AttentionParams(window=window, chunked=chunked)
    for each in (case, case.with_fp8_cache()):
        check(each.with_freed_blocks(window, chunked=chunked), device, replace(TUNING, programs=programs), params)


@pytest.mark.parametrize(
    ("programs", "window", "chunked"),
    [*((programs, window, False) for programs in (2, 6, 40) for window in (None, 20)), (6, 28, True)],
)
def test_sinks_count_once(programs: int, window: int | None, device: torch.device, *, chunked: bool) -> None:
    """Though a sequence lies in several slots and in those of its group; some outweigh all that is seen."""
    case = make_case(IN_GROUPS, heads=6, kv_heads=2, dim=16, block_size=16, seed=15, groups=GROUPS)
    sinks = torch.tensor([-30.0, -1.0, 0.0, 1.0, 4.0, 40.0])
    params = AttentionParams(window=window, chunked=chunked)
    for each in (case, case.with_fp8_cache()):
        check(each, device, replace(TUNING, programs=programs), params, sinks)
    check(case.of(torch.bfloat16), device, replace(TUNING, programs=programs), params, sinks)


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_soft_caps_and_scales(dtype: torch.dtype, window: int | None, device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=32, block_size=16, seed=5, groups=GROUPS)
    params = AttentionParams(scale=0.4, window=window, soft_cap=1.5)
    check(case.of(dtype), device, TUNING, params)
    check(replace(case.with_fp8_cache(), q=case.q.to(dtype)), device, TUNING, params)


def test_a_broken_token_before_the_window_spoils_nothing(device: torch.device) -> None:
    """Though it lies in a tile that is read."""
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=16, block_size=16, seed=14, groups=GROUPS)
    params = AttentionParams(window=22)
    out = attend(case.with_broken_tokens({4: 57, 7: 77}).on(device), TUNING, params).cpu().double()
    torch.testing.assert_close(out, textbook(case, params), atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_window_is_merged_of_many_parts(device: torch.device, *, chunked: bool) -> None:
    """Of which most lie before it."""
    case = make_case([(1, 700)], heads=4, kv_heads=1, dim=16, block_size=16, seed=4)
    check(case, device, replace(TUNING, programs=41), AttentionParams(window=150, chunked=chunked))
