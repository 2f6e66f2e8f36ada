"""Partial results of decode attention, and their merge by log-sum-exp into one result per sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch, AttentionShape
from thothy_ai.kernels.triton.attention.decode_plan import DecodePlan, group_tiles, skipped_tiles
from thothy_ai.kernels.triton.attention.online_softmax import LOG2_E, finite_base

_FEW = 1024  # query heads of a step, below which programs rather than their parts are spread out


@dataclass(frozen=True, eq=False)
class Partials:
    """`outputs` [P, H, V] float32, each divided by its sum of exponentials; `lse` [P, H], log2 of that sum.

    Partials over a sequence's own tokens have number sequence + slot; those over its group's prefix have number
    `group_base` + sequence + group_rows * slot, since a slot may hold as many members of the group that it ends in.
    """

    outputs: Tensor
    lse: Tensor
    group_base: int
    group_rows: int

    @classmethod
    def allocate(cls, shape: AttentionShape, num_slots: int, group_rows: int) -> Partials:
        """As many as any step may need."""
        group_base = shape.max_rows + num_slots
        count = group_base + shape.max_rows + group_rows * num_slots
        lse = torch.zeros(count, shape.num_heads, device=shape.device)
        return cls(torch.zeros(*lse.shape, shape.value_dim, device=shape.device), lse, group_base, group_rows)


def merge(partials: Partials, plan: DecodePlan, batch: AttentionBatch, out: Tensor, sinks: Tensor | None) -> None:
    """Fill out[:num_decode] of [T, H, V], except sequences that have a single part: those are there already.

    `sinks` [H] float32 or None: scores of each head that count once in the sum of exponentials.
    """
    num_heads, value_dim = out.shape[1:]
    heads, parts, warps = (1, 32, 4) if batch.num_decode * num_heads <= _FEW else (2, 4, 1)
    _merge_kernel[(batch.num_decode, triton.cdiv(num_heads, heads))](
        out, partials.outputs, partials.lse, sinks, batch.context_lens, batch.shared_lens,
        plan.totals, plan.own_starts, plan.group_starts, plan.group_skipped,
        *out.stride()[:2], partials.group_base,
        NUM_HEADS=num_heads, DIM=value_dim, DIM_PAD=triton.next_power_of_2(value_dim), HEADS=heads, PARTS=parts,
        TILE=plan.tile, GROUP_ROWS=partials.group_rows, WINDOW=plan.window, CHUNKED=plan.chunked, num_warps=warps,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["group_base"],
    do_not_specialize_on_alignment=["context_lens", "shared_lens"],
)
def _merge_kernel(
    out, partial_outputs, partial_lse, sinks, context_lens, shared_lens,
    totals, own_starts, group_starts, group_skipped,
    out_token, out_head, group_base,
    NUM_HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr,
    TILE: tl.constexpr, GROUP_ROWS: tl.constexpr, WINDOW: tl.constexpr, CHUNKED: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    dim = tl.arange(0, DIM_PAD)
    shared = tl.load(shared_lens + member)
    context = tl.load(context_lens + member)
    own = tl.cdiv(context - shared, TILE)
    if WINDOW is not None:
        own -= skipped_tiles(context, shared, TILE, WINDOW, CHUNKED)
    prefix = group_tiles(group_skipped, member, shared, TILE, WINDOW)
    own_first, own_parts = _slots(tl.load(own_starts + member), own, tl.load(totals + 2))
    group_first, group_parts = _slots(tl.load(group_starts + member), prefix, tl.load(totals))
    parts = own_parts + group_parts
    if parts > 1:
        total = tl.zeros([HEADS, DIM_PAD], tl.float32)
        m_i = tl.full([HEADS], float("-inf"), tl.float32)
        l_i = tl.zeros([HEADS], tl.float32)
        for first in range(0, parts, PARTS):
            part = first + tl.arange(0, PARTS)
            alone = member + own_first + part
            group = group_base + member + GROUP_ROWS * (group_first + part - own_parts)
            number = tl.where(part < own_parts, alone, group)[:, None] * NUM_HEADS + head[None, :]
            present = (part < parts)[:, None] & (head < NUM_HEADS)[None, :]
            lse = tl.load(partial_lse + number, mask=present, other=float("-inf"))  # [PARTS, HEADS]
            m_new = tl.maximum(m_i, tl.max(lse, 0))
            m_new = tl.where(head < NUM_HEADS, m_new, 0.0)
            base = finite_base(m_new, WINDOW)
            p = tl.exp2(lse - base[None, :])
            alpha = tl.exp2(m_i - base)
            pointers = partial_outputs + number[:, :, None] * DIM + dim[None, None, :]
            output = tl.load(pointers, mask=present[:, :, None] & (dim < DIM)[None, None, :], other=0.0)
            total = total * alpha[:, None] + tl.sum(output * p[:, :, None], 0)
            l_i = l_i * alpha + tl.sum(p, 0)
            m_i = m_new
        if sinks is not None:  # once, whatever the parts
            l_i += tl.exp2(tl.load(sinks + head, mask=head < NUM_HEADS, other=0.0) * LOG2_E - m_i)
        target = out + member.to(tl.int64) * out_token + (head * out_head)[:, None] + dim[None, :]
        inside = (head < NUM_HEADS)[:, None] & (dim < DIM)[None, :]
        tl.store(target, (total / l_i[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _slots(start, tiles, share):
    """The first slot of so many tiles from place `start` on, and how many slots they touch."""
    first = start // share
    last = (start + tiles - 1) // share
    return first, tl.where(tiles > 0, last - first + 1, 0)
