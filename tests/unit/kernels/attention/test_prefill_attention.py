"""Prefill attention in Triton against the textbook formula in float64; slots that were never written are NaN."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.support.attention_case import TOLERANCES, Case, Group, make_case, over_nan, shape_of, textbook
from tests.support.margins import Margins
from thothy_ai.kernels.paged import PLAIN, AttentionParams, LayerCache
from thothy_ai.kernels.reference.attention import paged_attention
from thothy_ai.kernels.triton.attention.prefill_attention import PrefillAttention, Tiling
from thothy_ai.kernels.triton.attention.prefill_plan import Span, prefill_spans, query_tiles, rounds, unpack_tiles

SMALL = Tiling(rows=32, keys=16, warps=4, stages=2)
MIXED = [(7, 7), (1, 17), (3, 20), (16, 31), (1, 1), (33, 70), (2, 2)]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="too large for the interpreter")


def attend(
    case: Case,
    tiling: Tiling | None = None,
    params: AttentionParams = PLAIN,
    unpacked_tokens: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """What the kernel makes of the case, over a poisoned result, and poisoned room for what is unpacked."""
    attention = PrefillAttention(shape_of(case), tiling, unpacked_tokens)
    if attention._unpacked is not None:
        attention._unpacked._parts[:, :4096].fill_(torch.nan)
    return over_nan(attention, case, params, sinks)


def check(
    case: Case,
    device: torch.device,
    tiling: Tiling | None = None,
    params: AttentionParams = PLAIN,
    unpacked_tokens: int | None = None,
    sinks: Tensor | None = None,
) -> None:
    """The prefills are right; the rows of decode sequences and those beyond all sequences are untouched."""
    there = sinks if sinks is None else sinks.to(device)
    out = attend(case.on(device), tiling, params, unpacked_tokens, there).cpu()
    first, end = case.batch.num_decode, sum(case.batch.query_lens)
    atol, rtol = TOLERANCES[case.q.dtype]
    expected = textbook(case, params, sinks)
    torch.testing.assert_close(out[first:end].double(), expected[first:end], atol=atol, rtol=rtol)
    assert out[:first].isnan().all()
    assert out[end:].isnan().all()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "block_size"),
    [
        (4, 4, 8, 3),
        (9, 3, 64, 16),
        (5, 1, 80, 3),
        (12, 2, 96, 16),
        (32, 2, 128, 16),
        (2, 1, 256, 32),
        (14, 2, 33, 5),
        (9, 1, 16, 16),
    ],
)
def test_heads_and_their_sizes(heads: int, kv_heads: int, dim: int, block_size: int, device: torch.device) -> None:
    case = make_case(MIXED, heads=heads, kv_heads=kv_heads, dim=dim, block_size=block_size, seed=dim)
    check(case, device, SMALL)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("queries", [1, 15, 16, 17, 32, 33])  # of tiles of 16 queries and 16 keys
def test_lengths_straddle_every_tile_edge(queries: int, block_size: int, device: torch.device) -> None:
    lengths = [(queries, queries + cached) for cached in (0, 1, 14, 15, 16, 17, 31, 32, 33)]
    case = make_case(lengths, heads=2, kv_heads=1, dim=16, block_size=block_size, seed=queries)
    check(replace(case, batch=replace(case.batch, num_decode=0)), device, SMALL)


@pytest.mark.parametrize(("window", "block_size"), [(1, 16), (7, 3), (16, 32), (17, 16), (40, 3), (500, 16)])
@pytest.mark.parametrize("chunked", [False, True])
def test_windows_begin_anywhere(block_size: int, window: int, device: torch.device, *, chunked: bool) -> None:
    case = make_case(MIXED, heads=2, kv_heads=1, dim=16, block_size=block_size, seed=window)
    params = AttentionParams(window=window, chunked=chunked)
    check(case.with_freed_blocks(window, chunked=chunked), device, SMALL, params)


@pytest.mark.parametrize("window", [60, 64, 77, 100])
@pytest.mark.parametrize("chunked", [False, True])
def test_tiles_that_every_row_sees_through_its_window(window: int, device: torch.device, *, chunked: bool) -> None:
    """They are not masked; those before and after them are."""
    case = make_case([(40, 200), (5, 130), (33, 33)], heads=2, kv_heads=1, dim=16, block_size=16, seed=window)
    params = AttentionParams(window=window, chunked=chunked)
    check(case.with_freed_blocks(window, chunked=chunked), device, SMALL, params)


@pytest.mark.parametrize("window", [None, 20])
def test_sinks(window: int | None, device: torch.device) -> None:
    case = make_case(MIXED, heads=6, kv_heads=2, dim=16, block_size=16, seed=15)
    sinks, params = torch.tensor([-30.0, -1.0, 0.0, 1.0, 4.0, 40.0]), AttentionParams(window=window)
    for each in (case, case.with_fp8_cache(), case.of(torch.bfloat16)):
        check(each, device, SMALL, params, sinks=sinks)


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("fp8", [False, True], ids=["plain", "fp8"])
def test_soft_caps_and_scales(fp8: bool, window: int | None, device: torch.device) -> None:
    case = make_case(MIXED, heads=4, kv_heads=2, dim=32, block_size=16, seed=5)
    case = case.with_fp8_cache() if fp8 else case
    check(case, device, SMALL, AttentionParams(scale=0.4, window=window, soft_cap=1.5))


def test_a_broken_token_before_the_window_spoils_nothing(device: torch.device) -> None:
    """Though it lies in a tile that is read."""
    case = make_case([(20, 60)], heads=2, kv_heads=1, dim=16, block_size=16, seed=12)
    params = AttentionParams(window=6)
    out = attend(case.with_broken_tokens({0: 34}).on(device), SMALL, params).cpu().double()
    torch.testing.assert_close(out, textbook(case, params), atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("block_size", [3, 8, 16, 32, 64])
@pytest.mark.parametrize("queries", [7, 40])
def test_nothing_is_read_past_a_sequence_in_the_block_table(
    queries: int, block_size: int, device: torch.device, margins: Margins
) -> None:
    case = make_case([(queries, 64)], heads=2, kv_heads=1, dim=16, block_size=block_size, seed=block_size)
    tables = margins.around(case.batch.block_tables[0][case.batch.rows, : -(-64 // block_size)])
    batch = replace(case.batch, block_tables=(tables,), rows=torch.zeros_like(case.batch.rows))
    case = replace(case, batch=batch).on(device)
    out = attend(case, SMALL).cpu().double()
    torch.testing.assert_close(out, textbook(case.on(torch.device("cpu"))), atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("fp8", [False, True], ids=["plain", "fp8"])
def test_a_broken_token_spoils_no_row_before_it(fp8: bool, block_size: int, device: torch.device) -> None:
    """Though it lies in the same tiles of queries and keys."""
    case = make_case([(20, 20), (37, 60)], heads=2, kv_heads=1, dim=16, block_size=block_size, seed=12)
    case = case.with_fp8_cache() if fp8 else case
    out = attend(case.with_broken_tokens({0: 7, 1: 40}).on(device), SMALL).cpu().double()
    expected = textbook(case)
    for before, broken in ((slice(0, 7), slice(7, 20)), (slice(20, 37), slice(37, 57))):
        torch.testing.assert_close(out[before], expected[before], atol=3e-6, rtol=1e-5)
        assert out[broken].isnan().all()


@pytest.mark.parametrize(
    ("dtype", "block_size"),
    [*((torch.bfloat16, size) for size in (16, 48, 64, 128)), (torch.float16, 64), (torch.float32, 16)],
)
def test_the_tiling_of_production(dtype: torch.dtype, block_size: int, device: torch.device) -> None:
    lengths = [(61, 61), (1, 129), (70, 200), (33, 160)]
    case = make_case(lengths, heads=4, kv_heads=1, dim=128, block_size=block_size, seed=block_size)
    check(case.of(dtype), device)


@pytest.mark.parametrize("dim", [64, 80, 256])
def test_the_tiling_of_other_head_sizes(dim: int, device: torch.device) -> None:
    case = make_case([(70, 140), (1, 65)], heads=2, kv_heads=1, dim=dim, block_size=32, seed=dim)
    check(case.of(torch.bfloat16), device)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("block_size", [3, 16, 64])
@pytest.mark.parametrize("unpacked_tokens", [1, 70, None], ids=["packed", "in rounds", "at once"])
def test_fp8_cache(dtype: torch.dtype, block_size: int, unpacked_tokens: int | None, device: torch.device) -> None:
    case = make_case(MIXED, heads=6, kv_heads=2, dim=64, block_size=block_size, seed=8).with_fp8_cache()
    check(replace(case, q=case.q.to(dtype)), device, SMALL, unpacked_tokens=unpacked_tokens)


@pytest.mark.parametrize("dim", [33, 80])
def test_fp8_cache_of_odd_heads(dim: int, device: torch.device) -> None:
    case = make_case(MIXED, heads=4, kv_heads=2, dim=dim, block_size=16, seed=dim).with_fp8_cache()
    check(case, device, SMALL)


@pytest.mark.parametrize(("window", "chunked"), [(1, False), (17, False), (40, False), (17, True), (40, True)])
@pytest.mark.parametrize("unpacked_tokens", [1, 70, None], ids=["packed", "in rounds", "at once"])
def test_windows_over_an_fp8_cache(
    unpacked_tokens: int | None, window: int, device: torch.device, *, chunked: bool
) -> None:
    case = make_case(MIXED, heads=2, kv_heads=1, dim=16, block_size=16, seed=window).with_fp8_cache()
    params = AttentionParams(window=window, chunked=chunked)
    check(case.with_freed_blocks(window, chunked=chunked), device, SMALL, params, unpacked_tokens)


def test_only_what_a_window_leaves_is_unpacked() -> None:
    """From the tile of 16 keys on that the first query's window begins in."""
    (span,) = prefill_spans((40,), (1000,), num_decode=0)
    within = span.within(AttentionParams(window=100), keys=16)
    assert (within.begin, within.read) == (848, 152)  # the first query, at 960, sees 861 to 960
    assert span.within(PLAIN, keys=16) == span.within(AttentionParams(window=2000), keys=16) == span
    assert span.within(AttentionParams(window=100, chunked=True), keys=16).begin == 896  # it sees 900 to 960
    ((placed,),) = rounds([within], capacity=152)
    assert unpack_tiles([placed])[0] == (0, 848, -848)


def test_values_that_only_the_scales_make_small(device: torch.device) -> None:
    case = make_case([(20, 60)], heads=2, kv_heads=1, dim=32, block_size=16, seed=4)
    tiny = replace(case, cache=case.cache._replace(values=case.cache.values * 1e-3)).with_fp8_cache()
    tiny = replace(tiny, q=tiny.q.half())
    out = attend(tiny.on(device), SMALL).cpu().double()
    torch.testing.assert_close(out, textbook(tiny), atol=3e-6, rtol=5e-3)


def test_scores_of_hundreds(device: torch.device) -> None:
    case = make_case([(20, 60)], heads=2, kv_heads=1, dim=32, block_size=16, seed=6)
    steep = replace(case, q=case.q * 300)
    out = attend(steep.on(device), SMALL).cpu().double()  # a score's last bit is worth 1e-4 in the exponent
    torch.testing.assert_close(out, textbook(steep), atol=1e-3, rtol=1e-3)


def test_another_memory_order_of_the_cache(device: torch.device) -> None:
    case = make_case(MIXED, heads=6, kv_heads=3, dim=16, block_size=16, seed=9)
    check(case.heads_first(), device, SMALL)
    check(case.with_fp8_cache().heads_first(), device, SMALL)


def test_keys_and_values_of_different_strides_are_refused(device: torch.device) -> None:
    case = make_case(MIXED, heads=6, kv_heads=3, dim=16, block_size=16, seed=9)
    cache = case.cache._replace(keys=case.heads_first().cache.keys)
    with pytest.raises(ValueError, match="differ in strides"):
        attend(replace(case, cache=cache).on(device), SMALL)


def test_queries_inside_the_merged_projection(device: torch.device) -> None:
    case = make_case(MIXED, heads=4, kv_heads=2, dim=16, block_size=16, seed=10)
    merged = torch.full((case.q.shape[0], 8, 16), torch.nan)
    merged[:, :4] = case.q
    check(replace(case, q=merged[:, :4]), device, SMALL)


def test_sequences_share_blocks(device: torch.device) -> None:
    lengths = [(20, 52), (9, 41), (30, 64)]
    check(
        make_case(lengths, heads=4, kv_heads=2, dim=16, block_size=16, seed=5, groups=[Group(0, 3, 2)]), device, SMALL
    )


def test_chunks_give_what_one_prefill_gives(device: torch.device) -> None:
    """Successive chunks over the same cache, cut at odd places."""
    whole = make_case([(90, 90)], heads=4, kv_heads=2, dim=32, block_size=16, seed=11).on(device)
    out = torch.full_like(whole.q, torch.nan)
    cuts = [0, 1, 18, 49, 50, 90]
    for start, end in pairwise(cuts):
        chunk = replace(
            whole.batch,
            context_lens=torch.tensor([end], dtype=torch.int32, device=device),
            query_starts=torch.tensor([0, end - start], dtype=torch.int32, device=device),
            num_decode=0,
            query_lens=(end - start,),
            kv_lens=(end,),
        )
        out[start:end] = attend(replace(whole, q=whole.q[start:end], batch=chunk), SMALL)
    torch.testing.assert_close(out, attend(whole, SMALL), atol=1e-6, rtol=1e-5)


def test_a_step_that_only_decodes_launches_nothing(device: torch.device) -> None:
    case = make_case([(1, 9), (1, 14)], heads=4, kv_heads=2, dim=16, block_size=16, seed=3)
    assert case.batch.num_decode == 2
    check(case, device)


def test_tiles_have_every_query_once_the_longest_sequence_first_and_each_from_its_end() -> None:
    query_lens, kv_lens = (1, 1, 70, 1, 33), (900, 4, 100, 300, 90)
    tiles = query_tiles(prefill_spans(query_lens, kv_lens, num_decode=2), tokens=32)
    assert [tile[:4] for tile in tiles] == [
        (3, 72, 299, 1),
        (2, 66, 94, 6),
        (2, 34, 62, 38),
        (2, 2, 30, 70),
        (4, 105, 89, 1),
        (4, 73, 57, 33),
    ]


def test_equal_sequences_keep_their_order() -> None:
    tiles = query_tiles(prefill_spans((40, 40), (64, 64), num_decode=0), tokens=32)
    assert [tile.member for tile in tiles] == [0, 0, 1, 1]


def test_rounds_hold_what_fits_and_lay_sequences_side_by_side() -> None:
    spans = [Span(member, start=0, queries=5, context=context) for member, context in enumerate((60, 40, 33, 100, 1))]
    places = [[(span.member, span.place) for span in each] for each in rounds(spans, capacity=100)]
    assert places == [[(0, 0), (1, 60)], [(2, 0)], [(3, 0)], [(4, 0)]]
    assert rounds([], capacity=100) == []
    assert unpack_tiles([Span(7, start=3, queries=5, context=65, place=9)]) == [(7, 0, 9), (7, 32, 9), (7, 64, 9)]


@pytest.mark.parametrize(("kilobytes", "keys"), [(227, 64), (163, 32), (99, 16), (48, 16)])  # of shared memory
def test_a_smaller_device_has_fewer_keys_in_a_tile(kilobytes: int, keys: int) -> None:
    tiling = Tiling(rows=128, keys=64, warps=8, stages=2)
    assert tiling.within(kilobytes * 1024 // 512) == replace(tiling, keys=keys)


@needs_gpu
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(32, 8, 128), (16, 8, 128), (9, 3, 64), (8, 8, 96), (16, 1, 256), (32, 4, 512)]
)
def test_large_steps(dtype: torch.dtype, heads: int, kv_heads: int, dim: int, device: torch.device) -> None:
    lengths = [(1, 777), (1200, 1200), (300, 1801), (2048, 2048), (129, 4000)]
    agree(make_case(lengths, heads=heads, kv_heads=kv_heads, dim=dim, block_size=16, seed=dim).of(dtype).on(device))


@needs_gpu
@pytest.mark.parametrize("seed", range(4))
def test_many_short_chunks(seed: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(seed)
    chunks = torch.randint(2, 300, (40,), generator=generator).tolist()
    cached = torch.randint(0, 1500, (40,), generator=generator).tolist()
    lengths = [(chunk, chunk + before) for chunk, before in zip(chunks, cached, strict=True)]
    case = make_case(lengths, heads=32, kv_heads=8, dim=128, block_size=(16, 32, 64, 128)[seed], seed=seed)
    agree(case.of(torch.bfloat16).on(device))


@needs_gpu
def test_blocks_beyond_the_32_bit_offsets(device: torch.device) -> None:
    case = make_case([(70, 200), (90, 90)], heads=32, kv_heads=8, dim=128, block_size=16, seed=1).of(torch.bfloat16)
    beyond = 2**31 // case.cache.keys[0].numel() + 1000
    case = case.on(device)
    keys, values = (torch.cat((part.new_full((beyond, 16, 8, 128), torch.nan), part)) for part in case.cache[:2])
    far = replace(case.batch, block_tables=(case.batch.block_tables[0] + beyond,))
    assert torch.equal(attend(replace(case, cache=LayerCache(keys, values), batch=far)), attend(case))


def agree(case: Case) -> None:
    """With the reference, in float32 on the same device."""
    out = attend(case)
    wide = LayerCache(case.cache.keys.float(), case.cache.values.float())
    expected = paged_attention(case.q.float(), wide, case.batch)
    first, (atol, rtol) = case.batch.num_decode, TOLERANCES[case.q.dtype]
    torch.testing.assert_close(out[first:].float(), expected[first:], atol=atol, rtol=rtol)
