"""Both kernels joined: steps that decode and prefill, against the textbook formula in float64."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support.attention_case import Case, Group, make_case, shape_of, textbook
from thothy_ai.kernels.paged import Attention, AttentionParams, KVHeads
from thothy_ai.kernels.reference import attention as reference
from thothy_ai.kernels.triton.attention.paged_attention import PagedAttention

MIXED = [(1, 17), (1, 40), (1, 3), (1, 33), (7, 7), (1, 20), (16, 31), (2, 2)]


def attend(case: Case) -> Tensor:
    attention: Attention = PagedAttention(shape_of(case))
    attention.plan(case.batch)
    return attention(case.q, case.cache)


def check(case: Case, device: torch.device, atol: float = 3e-6, rtol: float = 1e-5) -> None:
    out = attend(case.on(device)).cpu()
    tokens = sum(case.batch.query_lens)
    assert (out.shape, out.dtype) == (case.q.shape, case.q.dtype)
    torch.testing.assert_close(out[:tokens].double(), textbook(case)[:tokens], atol=atol, rtol=rtol)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 16), (9, 3, 64), (8, 1, 33)])
def test_mixed_steps(heads: int, kv_heads: int, dim: int, device: torch.device) -> None:
    check(make_case(MIXED, heads=heads, kv_heads=kv_heads, dim=dim, block_size=16, seed=dim, spare=3), device)


def test_layers_with_other_heads(device: torch.device) -> None:
    narrow = make_case(MIXED, heads=6, kv_heads=2, dim=16, block_size=16, seed=1).on(device)
    wide = make_case(MIXED, heads=6, kv_heads=1, dim=24, block_size=16, seed=1).on(device)  # the same blocks
    attention = PagedAttention(replace(shape_of(narrow), others=(KVHeads(1, 24),)))
    attention.plan(narrow.batch)
    for case in (narrow, wide, narrow):
        out = attention(case.q, case.cache)
        torch.testing.assert_close(
            out.double(), textbook(case.on(torch.device("cpu"))).to(device), atol=3e-6, rtol=1e-5
        )


@pytest.mark.parametrize("lengths", [[(1, 9), (1, 50)], [(9, 9), (30, 50)]], ids=["decodes", "prefills"])
def test_steps_of_one_kind(lengths: list[tuple[int, int]], device: torch.device) -> None:
    check(make_case(lengths, heads=4, kv_heads=2, dim=16, block_size=16, seed=2), device)


def test_groups_among_mixed_steps(device: torch.device) -> None:
    lengths = [(1, 50), (1, 33), (1, 64), (1, 5), (1, 49), (1, 90), (20, 70), (5, 5)]
    groups = [Group(0, 3, 2), Group(4, 2, 3)]
    check(make_case(lengths, heads=8, kv_heads=2, dim=16, block_size=16, seed=3, groups=groups), device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fp8", [False, True], ids=["cache", "fp8-cache"])
def test_half_precision(dtype: torch.dtype, fp8: bool, device: torch.device) -> None:
    case = make_case(MIXED, heads=8, kv_heads=2, dim=32, block_size=32, seed=4)
    case = replace(case.with_fp8_cache(), q=case.q.to(dtype)) if fp8 else case.of(dtype)
    check(case, device, atol=1.5e-2, rtol=1e-2)


def test_a_plan_holds_for_its_step_only(device: torch.device) -> None:
    """One object plans one step after another, with fewer and more prefills."""
    steps = [[(1, 9), (20, 30)], [(1, 12)], [(40, 40), (2, 9)]]
    cases = [
        make_case(lengths, heads=4, kv_heads=2, dim=16, block_size=16, seed=seed) for seed, lengths in enumerate(steps)
    ]
    attention = PagedAttention(shape_of(cases[0].on(device)))
    for case in cases:
        there = case.on(device)
        attention.plan(there.batch)
        out = attention(there.q, there.cache).cpu().double()
        torch.testing.assert_close(out, textbook(case), atol=3e-6, rtol=1e-5)


def test_layers_of_one_step_differ(device: torch.device) -> None:
    """Under one plan."""
    case = make_case(MIXED, heads=4, kv_heads=2, dim=16, block_size=16, seed=6)
    there = case.on(device)
    attentions = PagedAttention(shape_of(there)), reference.PagedAttention(shape_of(there))
    for attention in attentions:
        attention.plan(there.batch)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    layers = (AttentionParams(window=9, soft_cap=2.0), AttentionParams(), AttentionParams(window=9))
    for params, sinks_too in itertools.product((*layers, AttentionParams(window=20)), (False, True)):
        for attention in attentions:
            layer_sinks = sinks.to(device) if sinks_too else None
            out = attention(there.q, there.cache, params, sinks=layer_sinks).cpu().double()
            expected = textbook(case, params, sinks if sinks_too else None)
            torch.testing.assert_close(out, expected, atol=3e-6, rtol=1e-5)


def test_attention_must_be_planned(device: torch.device) -> None:
    case = make_case([(1, 9)], heads=4, kv_heads=2, dim=16, block_size=16, seed=5).on(device)
    with pytest.raises(RuntimeError, match="not planned"):
        PagedAttention(shape_of(case))(case.q, case.cache)
