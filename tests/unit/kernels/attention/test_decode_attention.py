"""Decode attention in Triton against the textbook formula in float64; slots that were never written are NaN."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support.attention_case import Case, Group, make_case, textbook
from thothy_ai.kernels.paged import PLAIN, AttentionBatch, AttentionParams, AttentionShape, LayerCache
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.decode_plan import DecodePlan
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning

TUNING = DecodeTuning(tile=16, ahead=1, warps=4, programs=8, group_rows=4)
TOLERANCES = {torch.float32: (3e-6, 1e-5), torch.float16: (3e-3, 5e-3), torch.bfloat16: (1.5e-2, 1e-2)}
GROUPS = [Group(first=1, size=4, blocks=3), Group(first=6, size=2, blocks=1)]
IN_GROUPS = [(1, 20), (1, 49), (1, 64), (1, 50), (1, 80), (1, 1), (1, 17), (1, 100)]  # those of GROUPS, pages of 16
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="too large for the interpreter")


def shape_of(case: Case) -> AttentionShape:
    _, block_size, kv_heads, dim = case.cache.keys.shape
    kv_dtype = case.cache.keys.dtype
    return AttentionShape(64, case.q.shape[1], kv_heads, dim, block_size, 4096, case.q.dtype, kv_dtype, case.q.device)


def attend(
    case: Case,
    tuning: DecodeTuning | None = TUNING,
    params: AttentionParams = PLAIN,
    sinks: Tensor | None = None,
) -> Tensor:
    """What the kernels make of the case, over a poisoned result."""
    attention = DecodeAttention(shape_of(case), tuning)
    attention.plan(case.batch)
    out = torch.full_like(case.q, torch.nan)
    attention(case.q, case.cache, case.batch, out, params, sinks)
    return out


def check(
    case: Case,
    device: torch.device,
    tuning: DecodeTuning | None = TUNING,
    params: AttentionParams = PLAIN,
    sinks: Tensor | None = None,
) -> None:
    """The decode sequences are right, and the rows of prefills untouched."""
    out = attend(case.on(device), tuning, params, sinks if sinks is None else sinks.to(device)).cpu()
    decodes = case.batch.num_decode
    atol, rtol = TOLERANCES[case.q.dtype]
    expected = textbook(case, params, sinks)
    torch.testing.assert_close(out[:decodes].double(), expected[:decodes], atol=atol, rtol=rtol)
    assert out[decodes:].isnan().all()


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


@pytest.mark.parametrize(("programs", "window"), [(2, 33), (6, 1), (6, 16), (6, 64), (40, 7), (40, 500)])
def test_windows_begin_anywhere(programs: int, window: int, device: torch.device) -> None:
    """In a prefix that members of a group see different parts of, or none; in tiles of a sequence alone."""
    case = make_case(IN_GROUPS, heads=2, kv_heads=1, dim=16, block_size=16, seed=window, groups=GROUPS)
    params = AttentionParams(window=window)
    for each in (case, case.with_fp8_cache()):
        check(each.with_freed_blocks(window), device, replace(TUNING, programs=programs), params)


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("programs", [2, 6, 40])
def test_sinks_count_once(programs: int, window: int | None, device: torch.device) -> None:
    """Though a sequence lies in several slots and in those of its group; some outweigh all that is seen."""
    case = make_case(IN_GROUPS, heads=6, kv_heads=2, dim=16, block_size=16, seed=15, groups=GROUPS)
    sinks, params = torch.tensor([-30.0, -1.0, 0.0, 1.0, 4.0, 40.0]), AttentionParams(window=window)
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


def test_a_long_window_is_merged_of_many_parts(device: torch.device) -> None:
    """Of which most lie before it."""
    case = make_case([(1, 700)], heads=4, kv_heads=1, dim=16, block_size=16, seed=4)
    check(case, device, replace(TUNING, programs=41), AttentionParams(window=150))


def test_a_long_sequence_is_merged_of_many_parts(device: torch.device) -> None:
    check(
        make_case([(1, 700)], heads=4, kv_heads=1, dim=16, block_size=16, seed=4), device, replace(TUNING, programs=41)
    )


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
    case.batch.block_tables[case.batch.rows[2:].long()] = 0
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


def plan_batch(contexts: list[int], groups: list[tuple[int, int]], device: torch.device) -> AttentionBatch:
    """Only what the planner reads; groups of (size, shared tokens), together as many sequences as contexts."""

    def index(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    sizes = [value for size, _ in groups for value in (size, *[0] * (size - 1))]
    shared = [tokens for size, tokens in groups for _ in range(size)]
    none, total = index([]), [tokens + own for tokens, own in zip(shared, contexts, strict=True)]
    return AttentionBatch(none, none, index(total), none, index(shared), index(sizes), len(total), (), ())


@pytest.mark.parametrize("window", [None, 1, 100, 300])
@pytest.mark.parametrize(("count", "slots"), [(1, 7), (5, 1), (60, 49), (1500, 33), (2500, 200)])
def test_every_token_that_is_seen_is_in_one_slot(
    count: int, slots: int, window: int | None, device: torch.device
) -> None:
    rng = random.Random(count)
    groups: list[tuple[int, int]] = []
    while sum(size for size, _ in groups) < count:
        room = count - sum(size for size, _ in groups)
        groups.append((min(room, rng.randint(1, 8)), rng.choice([0, 0, 16, 64, 500])))
    batch = plan_batch([rng.randint(1, 400) for _ in range(count)], groups, device)
    plan = DecodePlan.allocate(count, slots, 64, device, group_rows=8, window=window)
    plan.fill(batch)

    def cut(begin: int, end: int, context: int) -> int:
        """Tiles of tokens [begin, end) that a sequence sees some of."""
        oldest = 0 if window is None else context - window
        return sum(min(first + 64, end) > oldest for first in range(begin, end, 64))

    leads = [(member, size) for member, size in enumerate(batch.group_sizes.tolist()) if size]
    shared, contexts = batch.shared_lens.tolist(), batch.context_lens.tolist()
    seen = {member: cut(0, shared[member], min(contexts[member : member + size])) for member, size in leads}
    with_prefix = [(member, size) for member, size in leads if seen[member]]
    group_starts, place = [], 0
    for number, (member, size) in enumerate(with_prefix):
        group_starts.append(place)
        assert plan.group_members[number] == member
        assert plan.group_starts[member : member + size].tolist() == [place] * size
        place += seen[member]
    prefixes, place, own_starts = place, 0, []
    for member, context in enumerate(contexts):
        own_starts.append(place)
        assert plan.own_starts[member] == place
        place += cut(shared[member], context, context)
    shares = [max(1, -(-tiles // slots)) for tiles in (prefixes, place)]
    assert plan.totals.tolist() == [shares[0], prefixes, shares[1], place]
    lines = ((group_starts, shares[0], prefixes, plan.slot_groups), (own_starts, shares[1], place, plan.slot_members))
    for starts, share, tiles, first_units in lines:
        for slot in range(-(-tiles // share)):
            assert first_units[slot] == max(unit for unit, start in enumerate(starts) if start <= slot * share)


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
    moved = replace(there.batch, block_tables=there.batch.block_tables + (blocks - len(small.cache.keys)))
    out = attend(Case(there.q, LayerCache(*map(at_the_end, small.cache)), moved), None).cpu()
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
