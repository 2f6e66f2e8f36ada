"""Unpacked keys and values against the reference's, side by side in room that was NaN before."""

from __future__ import annotations

import pytest
import torch

from tests.support.attention_case import Case, make_case
from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.reference.attention import gather_blocks
from thothy_ai.kernels.triton.attention.prefill_plan import prefill_spans, rounds, unpack_tiles
from thothy_ai.kernels.triton.attention.unpack_fp8 import UnpackedKV

LENGTHS = [(1, 30), (7, 7), (40, 70), (5, 33)]
CAPACITY = 120


def shape_of(case: Case, dtype: torch.dtype, device: torch.device) -> AttentionShape:
    _, block_size, kv_heads, dim = case.cache.keys.shape
    return AttentionShape(64, kv_heads, kv_heads, dim, block_size, 4096, dtype, case.cache.keys.dtype, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("dim", "block_size"), [(64, 16), (33, 3), (8, 64)])
def test_every_token_lies_at_its_place(dim: int, block_size: int, dtype: torch.dtype, device: torch.device) -> None:
    case = make_case(LENGTHS, heads=2, kv_heads=2, dim=dim, block_size=block_size, seed=dim).with_fp8_cache()
    there, unpacked = case.on(device), UnpackedKV(shape_of(case, dtype, device), CAPACITY)
    unpacked._parts.fill_(torch.nan)
    (spans,) = rounds(prefill_spans(case.batch.query_lens, case.batch.kv_lens, case.batch.num_decode), CAPACITY)
    tiles = torch.tensor(unpack_tiles(spans), dtype=torch.int32, device=device)
    got = unpacked.fill(there.cache, there.batch, tiles)
    rounding = torch.finfo(dtype)
    used = 0
    for span in spans:
        blocks = case.batch.block_tables[0][case.batch.rows[span.member], : -(-span.context // block_size)]
        for part, wanted in zip(got[:2], gather_blocks(case.cache, blocks, torch.float32), strict=True):
            mine = part[0, span.place : span.place + span.context].float().cpu()
            torch.testing.assert_close(
                mine, wanted.flatten(0, 1)[: span.context], atol=rounding.tiny, rtol=rounding.eps
            )
        used += span.context
    assert used == 110
    assert bool(got.keys[0, used:].isnan().all())


def test_a_cache_without_scales_is_refused(device: torch.device) -> None:
    case = make_case(LENGTHS, heads=2, kv_heads=2, dim=8, block_size=16, seed=1)
    tiles = torch.tensor([[1, 0, 0]], dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="without scales"):
        UnpackedKV(shape_of(case, torch.float32, device), CAPACITY).fill(
            case.on(device).cache, case.on(device).batch, tiles
        )
