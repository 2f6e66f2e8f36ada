"""The gated delta rule, token by token or in chunks.

Members with a single token are computed in place: a program owns a part of one row's state in one head. What a token
adds to a state depends on the additions of the tokens before it. This gives a triangular system for each chunk and
head; all systems are inverted in parallel, and then a program goes through a row's chunks with a part of the state in
registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import DeltaGates
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

_EPS = tl.constexpr(1e-6)  # added to the squared length of a query or a key
_SYSTEM_REGISTERS = 160  # per thread: a multiprocessor has three programs of 128 threads instead of two
_SCAN_VALUES = 64  # per program that scans: what a warp group multiplies at a time


def gated_delta(
    mixed: Tensor,
    learned: Tensor,
    forgotten: Tensor,
    gates: DeltaGates,
    memory: Tensor,
    batch: AttentionBatch,
    out: Tensor | None = None,
) -> Tensor:
    """The gated delta rule (Yang et al., "Gated Delta Networks", 2025) over each row's tokens -> [T, H, V] float32,
    in `out` if that is given.

    `mixed` [T, 2 * key_heads * K + H * V] has queries, keys and values, `learned` and `forgotten` [T, H] the inputs of
    the gates. Neighbouring heads share a key head. `memory` [slots, H, V, K] has the states before the step, and is
    updated to those after it.
    """
    tokens = len(mixed)
    _, heads, values, keys = memory.shape
    if out is None:
        out = mixed.new_empty(tokens, heads, values, dtype=torch.float32)
    key_heads = (mixed.shape[1] - heads * values) // (2 * keys)
    given = (mixed, learned, forgotten, gates.rate, gates.offset)
    strides = (mixed.stride(0), learned.stride(0), forgotten.stride(0))
    sizes = (key_heads, heads, values, keys)
    width = power_of_two(keys, MIN_DOT)
    if batch.num_decode:
        block = min(power_of_two(values), DECODE_VALUES)
        _delta_kernel[(triton.cdiv(values, block), heads, batch.num_decode)](
            out, *given, memory, batch.rows, batch.context_lens, batch.num_decode, *strides, *sizes, block, width,
            num_warps=1,
        )  # fmt: skip
    if longer := batch.query_lens[batch.num_decode :]:
        members = LongerMembers.of(batch)
        factors = mixed.new_empty(4, heads, tokens, dtype=torch.float32)
        systems = (*mixed.new_empty(2, tokens, heads, CHUNK), factors, tokens)
        exact = mixed.dtype == torch.float32
        grid = (len(longer), triton.cdiv(max(longer), CHUNK), heads)
        _systems_kernel[grid](
            *systems, *given, members.starts, *strides, key_heads, heads, keys, width, CHUNK, exact, num_warps=4,
            maxnreg=None if exact or width > 128 else _SYSTEM_REGISTERS,
        )  # fmt: skip
        block = min(power_of_two(values, MIN_DOT), _SCAN_VALUES)
        _scan_kernel[(len(longer), heads, triton.cdiv(values, block))](
            out, mixed, *systems, memory, *members, strides[0], *sizes, block, width, CHUNK, exact,
            num_warps=4, num_stages=1 if exact else 2,
        )  # fmt: skip
    return out


@triton.jit
def _gates(learned, forgotten, rate, offset, token, learned_token, forgotten_token, head, there):
    """The logarithms of decays, and the learning rates, of one head's tokens; both are 0 for missing tokens."""
    a = tl.load(forgotten + token * forgotten_token + head, mask=there, other=0.0).to(tl.float32)
    b = tl.load(learned + token * learned_token + head, mask=there, other=0.0).to(tl.float32)
    decay = tl.load(rate + head) * softplus(a + tl.load(offset + head))
    return tl.where(there, decay, 0.0), tl.where(there, tl.sigmoid(b), 0.0)


@triton.jit
def _delta_token(
    state, out, mixed, learned, forgotten, rate, offset, token, head, value_at, key_at, stored,
    mixed_token, learned_token, forgotten_token,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The state [BLOCK, WIDTH] after a token, by that before it; what the token reads is `stored` or not."""
    has_value, has_key = value_at < VALUES, key_at < KEYS
    source = mixed + token * mixed_token + head // (HEADS // KEY_HEADS) * KEYS + key_at
    q = tl.load(source, mask=has_key, other=0.0).to(tl.float32)
    k = tl.load(source + KEY_HEADS * KEYS, mask=has_key, other=0.0).to(tl.float32)
    v_source = mixed + token * mixed_token + 2 * KEY_HEADS * KEYS + head * VALUES
    v = tl.load(v_source + value_at, mask=has_value, other=0.0).to(tl.float32)
    decay, learns = _gates(learned, forgotten, rate, offset, token, learned_token, forgotten_token, head, True)
    q *= tl.rsqrt(tl.sum(q * q, 0) + _EPS) * (KEYS**-0.5)
    k *= tl.rsqrt(tl.sum(k * k, 0) + _EPS)
    state *= tl.exp(decay)
    added = learns * (v - tl.sum(state * k[None, :], 1))
    state += added[:, None] * k[None, :]
    read = tl.sum(state * q[None, :], 1)
    tl.store(out + (token * HEADS + head) * VALUES + value_at, read, mask=has_value & stored)
    return state


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends"],
)
def _delta_kernel(
    out, mixed, learned, forgotten, rate, offset, memory, rows, ends, members,
    mixed_token, learned_token, forgotten_token,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    # All loads for a first token are issued before any is waited for, since waiting for loads decides the speed.
    member, head = tl.program_id(2), tl.program_id(1)
    value_at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key_at = tl.arange(0, WIDTH)
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == 1
    place, inside = state_part(memory, row, head, value_at, key_at, HEADS, VALUES, KEYS)
    kept = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    state = tl.where(fresh, 0.0, kept)
    leads = continues(rows, ends, None, member, members) == 0
    state = _delta_token(
        state, out, mixed, learned, forgotten, rate, offset, member.to(tl.int64), head, value_at, key_at, leads,
        mixed_token, learned_token, forgotten_token, KEY_HEADS, HEADS, VALUES, KEYS,
    )  # fmt: skip
    run = run_length(rows, ends, None, member, members)  # a loop that goes on by what it reads can't carry tensors
    for token in range(member.to(tl.int64) + 1, member.to(tl.int64) + run):
        state = _delta_token(
            state, out, mixed, learned, forgotten, rate, offset, token, head, value_at, key_at, True,
            mixed_token, learned_token, forgotten_token, KEY_HEADS, HEADS, VALUES, KEYS,
        )  # fmt: skip
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside & leads)


@triton.jit
def _keyed(source, token, stride, column, there, KEYS: tl.constexpr):
    """Rows [CHUNK, WIDTH] of queries or keys, as they are; zeros for missing tokens."""
    inside = there[:, None] & (column < KEYS)[None, :]
    return tl.load(source + token[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def _reciprocal_lengths(rows):
    wide = rows.to(tl.float32)
    return tl.rsqrt(tl.sum(wide * wide, 1) + _EPS)


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["starts"])
def _systems_kernel(
    solved, scores, factors, tokens, mixed, learned, forgotten, rate, offset, starts,
    mixed_token, learned_token, forgotten_token,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, KEYS: tl.constexpr,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Prepare one chunk of one head for the scan: the inverse of its system, times the learning rates; the scores of
    its queries; and four factors for each token: of its query and of its key in the state before the chunk, of its key
    in the state after it, and of the earlier state, which decays. Queries and keys are multiplied without being
    normalized, so that the first three factors include their reciprocal lengths.
    """
    member, head = tl.program_id(0), tl.program_id(2)
    begin = tl.load(starts + member).to(tl.int64) + tl.program_id(1) * CHUNK
    end = tl.load(starts + member + 1)
    if begin < end:
        token, column = begin + tl.arange(0, CHUNK), tl.arange(0, WIDTH)
        there = token < end
        source = mixed + head // (HEADS // KEY_HEADS) * KEYS
        q = _keyed(source, token, mixed_token, column, there, KEYS)
        k = _keyed(source + KEY_HEADS * KEYS, token, mixed_token, column, there, KEYS)
        of_q, of_k = _reciprocal_lengths(q) * (KEYS**-0.5), _reciprocal_lengths(k)
        decay, learns = _gates(learned, forgotten, rate, offset, token, learned_token, forgotten_token, head, there)
        ages, last = tl.cumsum(decay, 0), tl.sum(decay, 0)
        reached = tl.exp(ages)
        place = factors + head.to(tl.int64) * tokens + token
        part = HEADS * tokens
        tl.store(place, reached * of_q, mask=there)
        tl.store(place + part, reached * of_k, mask=there)
        tl.store(place + 2 * part, tl.exp(last - ages) * of_k, mask=there)
        tl.store(place + 3 * part, reached, mask=there)

        later, earlier = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
        since = tl.exp(tl.where(later >= earlier, ages[:, None] - ages[None, :], 0.0)) * of_k[None, :]
        dtype = mixed.dtype.element_ty
        seen = tl.where(later >= earlier, dot(q, tl.trans(k), dtype, EXACT) * since * of_q[:, None], 0.0)
        between = (token[:, None] * HEADS + head) * CHUNK + earlier
        tl.store(scores + between, seen.to(dtype), mask=there[:, None])
        system = dot(k, tl.trans(k), dtype, EXACT) * since * (learns * of_k)[:, None]
        # Combine the inverses of two diagonal blocks, with the block between them, into that of a block twice as large.
        # A column of an inverse, or of its product with the block between, is what tokens add to a state that began as
        # one key. Keys have length 1, and rates and decays are at most 1, so that a state only shrinks. As no number
        # exceeds 1, float16 keeps as many digits as TF32.
        inverse = tl.where(later == earlier, 1.0, 0.0) - tl.where(
            (later % 2 == 1) & (later == earlier + 1), system, 0.0
        )
        for level in range(1, 6):
            apart = ((later >> level) % 2 == 1) & (later >> level == (earlier >> level) + 1)
            lower = tl.where(apart, system, 0.0)
            inverse -= dot(dot(inverse, lower, tl.float16, EXACT), inverse, tl.float16, EXACT)
        tl.store(solved + between, (inverse * learns[None, :]).to(dtype), mask=there[:, None])


@triton.jit(
    do_not_specialize=["tokens", "members"],
    do_not_specialize_on_alignment=["rows", "ends", "starts", "keeps"],
)
def _scan_kernel(
    out, mixed, solved, scores, factors, tokens, memory, members, rows, ends, starts, keeps, mixed_token,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The chunks of a member and of those that continue its row, one after the other, for some of a head's values.

    All is transposed, values by tokens: the state, and each result in turn, is the left operand of the next product and
    stays in registers. The right operands stay as they were loaded, in shared memory; products are multiplied by what
    queries and keys lack.
    """
    member, head = tl.program_id(0), tl.program_id(1)
    value_at, column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    run, state, place, inside = begin_run(
        memory, rows, ends, starts, member, members, head, value_at, column, HEADS, VALUES, KEYS
    )
    dtype = mixed.dtype.element_ty
    source = mixed + head // (HEADS // KEY_HEADS) * KEYS
    v_source = mixed + 2 * KEY_HEADS * KEYS + head * VALUES
    own, part = factors + head.to(tl.int64) * tokens, HEADS * tokens
    for each in range(member, member + run):
        begin = tl.load(starts + each).to(tl.int64)
        end = tl.load(starts + each + 1).to(tl.int64)
        for first in range(begin, end, CHUNK):
            token = first + tl.arange(0, CHUNK)
            there = token < end
            q = _keyed(source, token, mixed_token, column, there, KEYS)
            k = _keyed(source + KEY_HEADS * KEYS, token, mixed_token, column, there, KEYS)
            has_value = (value_at < VALUES)[:, None] & there[None, :]
            v = tl.load(v_source + token[None, :] * mixed_token + value_at[:, None], mask=has_value, other=0.0)
            of_q = tl.load(own + token, mask=there, other=0.0)[None, :]
            of_k = tl.load(own + part + token, mask=there, other=0.0)[None, :]
            added_by = tl.load(own + 2 * part + token, mask=there, other=0.0)[None, :]
            left = tl.load(own + 3 * part + tl.minimum(first + CHUNK, end) - 1)
            between = (token[:, None] * HEADS + head) * CHUNK + tl.arange(0, CHUNK)[None, :]
            inverse = tl.load(solved + between, mask=there[:, None], other=0.0)
            seen = tl.load(scores + between, mask=there[:, None], other=0.0)
            missing = v.to(tl.float32) - of_k * dot(state, tl.trans(k), dtype, EXACT)
            added = dot(missing, tl.trans(inverse), dtype, EXACT)
            read = of_q * dot(state, tl.trans(q), dtype, EXACT) + dot(added, tl.trans(seen), dtype, EXACT)
            tl.store(out + (token[None, :] * HEADS + head) * VALUES + value_at[:, None], read, mask=has_value)
            state = left * state + dot(added_by * added, k, dtype, EXACT)
        keep_state(state, memory, keeps, each, head, value_at, column, inside, HEADS, VALUES, KEYS)
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside)
