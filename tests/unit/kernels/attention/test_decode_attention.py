"""Decode attention in Triton against the textbook formula in float64; slots that were never written are NaN."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support.attention_case import Case, Group, make_case, shape_of, textbook
from tests.support.decode_case import GROUPS, IN_GROUPS, TUNING, attend, check
from thothy_ai.kernels.paged import LayerCache
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="too large for the interpreter")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(4, 4, 8), (9, 3, 64), (5, 1, 80), (14, 2, 33), (16, 1, 96), (2, 1, 256)]
)
def test_heads_and_their_sizes(heads: int, kv_heads: int, dim: int, device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=heads, kv_heads=kv_heads, dim=dim, block_size=16, seed=dim, groups=GROUPS)
    check(case, device)
    if dim % 2 == 0:
        check(case.with_fp8_cache(), device)


@pytest.mark.parametrize("block_size", [3, 16, 32])
@pytest.mark.parametrize("programs", [1, 3, 24])
def test_lengths_straddle_every_tile_and_slot_edge(block_size: int, programs: int, device: torch.device) -> None:
    lengths = [(1, length) for length in (1, 15, 16, 17, 31, 32, 33, 2, 48, 63, 64, 65)]
    case = make_case(lengths, heads=2, kv_heads=1, dim=16, block_size=block_size, seed=programs)
    check(case, device, replace(TUNING, programs=programs))
    check(case.with_fp8_cache(), device, replace(TUNING, programs=programs))


@pytest.mark.parametrize("programs", [2, 6, 14, 40])
def test_groups_are_cut_anywhere(programs: int, device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=6, kv_heads=2, dim=16, block_size=16, seed=programs, groups=GROUPS)
    check(case, device, replace(TUNING, programs=programs))


@pytest.mark.parametrize("seed", range(3))
def test_random_steps(seed: int, device: torch.device) -> None:
    rng = random.Random(seed)
    lengths, groups = [], []
    for _ in range(rng.randint(2, 5)):
        size, blocks = rng.randint(1, 4), rng.randint(0, 6)
        if blocks:
            groups.append(Group(len(lengths), size, blocks))
        lengths += [(1, blocks * 8 + rng.randint(1, 40)) for _ in range(size)]
    case = make_case(lengths, heads=4, kv_heads=2, dim=16, block_size=8, seed=seed, groups=groups)
    check(case, device, replace(TUNING, tile=rng.choice([16, 32]), programs=rng.randint(1, 20)))


def test_a_long_sequence_is_merged_of_many_parts(device: torch.device) -> None:
    check(
        make_case([(1, 700)], heads=4, kv_heads=1, dim=16, block_size=16, seed=4), device, replace(TUNING, programs=41)
    )


def test_prefills_of_a_mixed_step_are_left_alone(device: torch.device) -> None:
    lengths = [(1, 17), (1, 1), (1, 40), (7, 7), (3, 20), (1, 9)]
    case = make_case(lengths, heads=4, kv_heads=2, dim=16, block_size=16, seed=2)
    assert case.batch.num_decode == 3
    check(case, device)
    prefills = make_case(lengths[3:], heads=4, kv_heads=2, dim=16, block_size=16, seed=2)
    check(prefills, device)


def test_padded_rows_read_the_dummy_block_only(device: torch.device) -> None:
    """A graph pads a step with rows of context 1 whose block table is all zeros."""
    case = make_case([(1, 33), (1, 20), (1, 1), (1, 1)], heads=4, kv_heads=2, dim=16, block_size=16, seed=3)
    case.batch.block_tables[0][case.batch.rows[2:].long()] = 0
    for part in case.cache[:2]:
        part[0, 0] = 5.0
    check(case, device)


def test_other_memory_orders(device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=16, block_size=16, seed=6, groups=GROUPS)
    check(case.heads_first(), device)
    check(case.with_fp8_cache().heads_first(), device)
    merged = torch.full((len(case.q), 8, 16), torch.nan)
    merged[:, :4] = case.q
    check(replace(case, q=merged[:, :4]), device)


def test_keys_and_values_must_lie_alike(device: torch.device) -> None:
    case = make_case([(1, 5)], heads=4, kv_heads=2, dim=16, block_size=16, seed=6).on(device)
    with pytest.raises(ValueError, match="strides"):
        attend(replace(case, cache=case.cache._replace(values=case.heads_first().cache.values)))


def test_the_default_tuning(device: torch.device) -> None:
    check(make_case(IN_GROUPS, heads=4, kv_heads=2, dim=64, block_size=16, seed=1, groups=GROUPS), device, None)


def test_a_buffer_is_planned_again_and_again(device: torch.device) -> None:
    """Steps of the same buffers with other lengths, as a graph replays them."""
    case = make_case(IN_GROUPS, heads=4, kv_heads=2, dim=16, block_size=16, seed=11, groups=GROUPS).on(device)
    attention, out = DecodeAttention(shape_of(case), TUNING), torch.empty_like(case.q)
    shorter = [context - 1 if context > 49 else context for context in case.batch.kv_lens]
    for lengths in (case.batch.kv_lens, shorter, case.batch.kv_lens):
        case.batch.context_lens.copy_(torch.tensor(lengths))
        attention.plan(case.batch)
        attention(case.q, case.cache, case.batch, out.fill_(torch.nan))
        there = replace(case, batch=replace(case.batch, kv_lens=tuple(lengths))).on(torch.device("cpu"))
        torch.testing.assert_close(out.cpu().double(), textbook(there), atol=3e-6, rtol=1e-5)


@needs_gpu
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "dtype"),
    [
        (32, 8, 128, torch.bfloat16),
        (16, 8, 128, torch.float16),
        (8, 2, 128, torch.float32),
        (7, 1, 64, torch.bfloat16),
        (3, 1, 80, torch.float32),
        (16, 1, 96, torch.bfloat16),
        (8, 4, 256, torch.bfloat16),
        (32, 4, 512, torch.bfloat16),
        (8, 1, 512, torch.float32),
    ],
)
def test_many_rows(heads: int, kv_heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
    rng = random.Random(dim)
    lengths = [(1, 560 + rng.randint(1, 900)) for _ in range(60)]
    size = min(4, 32 // heads * kv_heads)
    groups = [Group(first, size, rng.randint(1, 35)) for first in range(0, 40, size)]
    case = make_case(lengths, heads=heads, kv_heads=kv_heads, dim=dim, block_size=16, seed=1, groups=groups).of(dtype)
    check(case, device, None)
    check(case.with_fp8_cache(), device, None)


@needs_gpu
@pytest.mark.parametrize("fp8", [False, True])
def test_blocks_beyond_two_to_the_31_numbers_or_pairs(fp8: bool, device: torch.device) -> None:
    """The last blocks of a cache of more than 2**32 bytes; before them there is only NaN."""
    small = make_case([(1, 100), (1, 40)], heads=8, kv_heads=4, dim=128, block_size=16, seed=1).of(torch.bfloat16)
    small = small.with_fp8_cache() if fp8 else small
    blocks = 2**32 // (16 * 4 * 128 * small.cache.keys.itemsize) + 100

    def at_the_end(part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        *sizes, last = part.shape
        large = torch.full((blocks, *sizes[1:], last * part.itemsize), 0xFF, dtype=torch.uint8, device=device)
        large.view(part.dtype)[-len(part) :] = part.to(device)
        return large.view(part.dtype)

    there = small.on(device)
    moved = replace(there.batch, block_tables=(there.batch.block_tables[0] + (blocks - len(small.cache.keys)),))
    out = attend(Case(there.q, LayerCache(*map(at_the_end, small.cache[:4])), moved), None).cpu()
    expected = textbook(small)
    torch.testing.assert_close(out.double(), expected, atol=1.5e-2, rtol=1e-2)


@needs_gpu
def test_a_graph_stays_valid_as_lengths_change(device: torch.device) -> None:
    case = make_case(IN_GROUPS, heads=8, kv_heads=2, dim=64, block_size=16, seed=9, groups=GROUPS).on(device)
    attention, out = DecodeAttention(shape_of(case)), torch.empty_like(case.q)

    def step() -> None:
        attention.plan(case.batch)
        attention(case.q, case.cache, case.batch, out)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    shorter = tuple(context - 1 if context > 49 else context for context in case.batch.kv_lens)
    for lengths in (shorter, case.batch.kv_lens):
        case.batch.context_lens.copy_(torch.tensor(lengths))
        out.fill_(torch.nan)
        graph.replay()
        there = replace(case, batch=replace(case.batch, kv_lens=lengths)).on(torch.device("cpu"))
        torch.testing.assert_close(out.cpu().double(), textbook(there), atol=3e-6, rtol=1e-5)
