"""Device-resident rows in Triton: reads a step's tokens, and writes changes into rows, each in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.step import StepColumns, StepTokens

_SHORT, _LONG = 32, 1024  # tokens per program: only two sizes, whatever the step


def step_tokens(
    token_ids: Tensor, block_tables: Tensor, columns: StepColumns, total: int, block_size: int
) -> StepTokens:
    """The step's tokens, read from rows: token_ids [rows, L], block_tables [rows, tables, B] int32; `total` is T.

    Every sequence has at least one token.
    """
    members = len(columns.rows)
    longest = total - members + 1
    width = _SHORT if longest <= _SHORT else _LONG
    tables = block_tables.shape[1]
    out = torch.empty(2 + tables, total, dtype=torch.int64, device=token_ids.device)
    _step_tokens_kernel[(members, triton.cdiv(longest, width))](
        out, token_ids, block_tables, *columns, total, token_ids.stride(0), *block_tables.stride()[:2],
        tables, block_size, width, num_warps=width // 256 or 1,
    )  # fmt: skip
    return StepTokens.of(out)


def scatter(target: Tensor, index: Tensor, values: Tensor) -> None:
    """target.flatten()[index] = values; index [N] int32 without duplicates, values [N] of the target's type."""
    _scatter_kernel[(triton.cdiv(len(index), _LONG),)](target.view(-1), index, values, len(index), _LONG)


@triton.jit(
    do_not_specialize=["total", "token_row", "table_row", "table"],
    do_not_specialize_on_alignment=["out", "rows", "starts", "places", "counts", "query_starts"],
)
def _step_tokens_kernel(
    out,
    token_ids,
    block_tables,
    rows,
    starts,
    places,
    counts,
    query_starts,
    total,
    token_row,
    table_row,
    table,
    TABLES: tl.constexpr,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    member = tl.program_id(0)
    offset = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = offset < tl.load(counts + member)
    row = tl.load(rows + member).to(tl.int64)
    position, place = tl.load(starts + member) + offset, tl.load(places + member) + offset
    out += tl.load(query_starts + member) + offset
    token = tl.load(token_ids + row * token_row + position, mask=inside, other=0)
    tl.store(out, token.to(tl.int64), mask=inside)
    tl.store(out + total, position.to(tl.int64), mask=inside)
    entry = block_tables + row * table_row + place // PAGE
    for index in tl.static_range(TABLES):
        block = tl.load(entry + index * table, mask=inside, other=0).to(tl.int64)
        tl.store(out + (2 + index) * total, block * PAGE + place % PAGE, mask=inside)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["index", "values"])
def _scatter_kernel(target, index, values, count, WIDTH: tl.constexpr):
    element = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    inside = element < count
    at = tl.load(index + element, mask=inside, other=0).to(tl.int64)
    tl.store(target + at, tl.load(values + element, mask=inside, other=0), mask=inside)
