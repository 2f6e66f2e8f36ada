"""Selective state spaces, token by token or in chunks.

Members with a single token are computed in place: a program owns a part of one row's state in one head. For longer
members, a program goes through a row's chunks with such a part in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import SpaceGates
from thothy_ai.kernels.triton.states.arithmetic import MIN_DOT, dot, softplus
from thothy_ai.kernels.triton.states.members import (
    CHUNK,
    DECODE_VALUES,
    LongerMembers,
    begin_run,
    continues,
    keep_state,
    run_length,
    state_part,
)
from thothy_ai.kernels.triton.tiles import power_of_two

_SCAN_VALUES = 32  # per program that scans


def state_space(
    mixed: Tensor, steps: Tensor, gates: SpaceGates, memory: Tensor, batch: AttentionBatch, out: Tensor | None = None
) -> Tensor:
    """A selective state space (Dao and Gu, "Transformers are SSMs" (Mamba-2), 2024) over each row's tokens
    -> [T, H, V] float32, in `out` if that is given.

    `mixed` [T, H * V + 2 * groups * K] has values, and B and C, by which they are written and read like keys and
    queries and which neighbouring heads share; `steps` [T, H] are the inputs of the step sizes. `memory`
    [slots, H, V, K] has the states before the step, and is updated to those after it.
    """
    _, heads, values, keys = memory.shape
    if out is None:
        out = mixed.new_empty(len(mixed), heads, values, dtype=torch.float32)
    groups = (mixed.shape[1] - heads * values) // (2 * keys)
    given = (mixed, steps, gates.rate, gates.offset, gates.skip, memory)
    sizes = (mixed.stride(0), steps.stride(0), groups, heads, values, keys)
    width = power_of_two(keys, MIN_DOT)
    if batch.num_decode:
        block = min(power_of_two(values), DECODE_VALUES)
        _space_kernel[(triton.cdiv(values, block), heads, batch.num_decode)](
            out, *given, batch.rows, batch.context_lens, batch.num_decode, *sizes, block, width, num_warps=1
        )
    if longer := batch.query_lens[batch.num_decode :]:
        block, exact = min(power_of_two(values, MIN_DOT), _SCAN_VALUES), mixed.dtype == torch.float32
        _space_scan_kernel[(len(longer), heads, triton.cdiv(values, block))](
            out, *given, *LongerMembers.of(batch), *sizes, block, width, CHUNK, exact,
            num_warps=4, num_stages=1 if exact else 2,
        )  # fmt: skip
    return out


@triton.jit
def _space_token(
    state, out, mixed, steps, rate, offset, skip, token, head, value_at, key_at, stored, mixed_token, steps_token,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The state [BLOCK, WIDTH] after a token, by that before it; what the token reads is `stored` or not."""
    has_value, has_key = value_at < VALUES, key_at < KEYS
    source = mixed + token * mixed_token
    k_source = source + HEADS * VALUES + head // (HEADS // GROUPS) * KEYS + key_at
    v = tl.load(source + head * VALUES + value_at, mask=has_value, other=0.0).to(tl.float32)
    k = tl.load(k_source, mask=has_key, other=0.0).to(tl.float32)
    q = tl.load(k_source + GROUPS * KEYS, mask=has_key, other=0.0).to(tl.float32)
    step = softplus(tl.load(steps + token * steps_token + head).to(tl.float32) + tl.load(offset + head))
    state = state * tl.exp(tl.load(rate + head) * step) + (step * v)[:, None] * k[None, :]
    read = tl.sum(state * q[None, :], 1) + tl.load(skip + head) * v
    tl.store(out + (token * HEADS + head) * VALUES + value_at, read, mask=has_value & stored)
    return state


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends"],
)
def _space_kernel(
    out, mixed, steps, rate, offset, skip, memory, rows, ends, members, mixed_token, steps_token,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    member, head = tl.program_id(2), tl.program_id(1)
    value_at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key_at = tl.arange(0, WIDTH)
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == 1
    place, inside = state_part(memory, row, head, value_at, key_at, HEADS, VALUES, KEYS)
    kept = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    state = tl.where(fresh, 0.0, kept)
    leads = continues(rows, ends, None, member, members) == 0
    state = _space_token(
        state, out, mixed, steps, rate, offset, skip, member.to(tl.int64), head, value_at, key_at, leads,
        mixed_token, steps_token, GROUPS, HEADS, VALUES, KEYS,
    )  # fmt: skip
    run = run_length(rows, ends, None, member, members)  # a loop that goes on by what it reads can't carry tensors
    for token in range(member.to(tl.int64) + 1, member.to(tl.int64) + run):
        state = _space_token(
            state, out, mixed, steps, rate, offset, skip, token, head, value_at, key_at, True,
            mixed_token, steps_token, GROUPS, HEADS, VALUES, KEYS,
        )  # fmt: skip
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside & leads)


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends", "starts", "keeps"],
)
def _space_scan_kernel(
    out, mixed, steps, rate, offset, skip, memory, members, rows, ends, starts, keeps, mixed_token, steps_token,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The chunks of a member and of those that continue its row, one after the other, for some of a head's values."""
    member, head = tl.program_id(0), tl.program_id(1)
    value_at, column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    run, state, place, inside = begin_run(
        memory, rows, ends, starts, member, members, head, value_at, column, HEADS, VALUES, KEYS
    )
    dtype = mixed.dtype.element_ty
    k_source = mixed + HEADS * VALUES + head // (HEADS // GROUPS) * KEYS
    v_source = mixed + head * VALUES
    later, earlier = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    for each in range(member, member + run):
        begin = tl.load(starts + each).to(tl.int64)
        end = tl.load(starts + each + 1).to(tl.int64)
        for first in range(begin, end, CHUNK):
            token = first + tl.arange(0, CHUNK)
            there = token < end
            has_key = there[:, None] & (column < KEYS)[None, :]
            at = token[:, None] * mixed_token + column[None, :]
            k = tl.load(k_source + at, mask=has_key, other=0.0)
            q = tl.load(k_source + GROUPS * KEYS + at, mask=has_key, other=0.0)
            has_value = there[:, None] & (value_at < VALUES)[None, :]
            v = tl.load(v_source + token[:, None] * mixed_token + value_at[None, :], mask=has_value, other=0.0)
            v = v.to(tl.float32)
            dt = tl.load(steps + token * steps_token + head, mask=there, other=0.0).to(tl.float32)
            step = tl.where(there, softplus(dt + tl.load(offset + head)), 0.0)
            decay = tl.load(rate + head) * step
            ages = tl.cumsum(decay, 0)
            since = tl.exp(tl.where(later >= earlier, ages[:, None] - ages[None, :], 0.0))
            seen = tl.where(later >= earlier, dot(q, tl.trans(k), dtype, EXACT) * since, 0.0)
            added = step[:, None] * v
            read = tl.exp(ages)[:, None] * dot(q, tl.trans(state), dtype, EXACT) + dot(seen, added, dtype, EXACT)
            read += tl.load(skip + head) * v
            tl.store(out + (token[:, None] * HEADS + head) * VALUES + value_at[None, :], read, mask=has_value)
            last = tl.sum(decay, 0)
            left = tl.exp(last - ages)[:, None]
            state = tl.exp(last) * state + dot(tl.trans(added), left * k.to(tl.float32), dtype, EXACT)
        keep_state(state, memory, keeps, each, head, value_at, column, inside, HEADS, VALUES, KEYS)
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside)
