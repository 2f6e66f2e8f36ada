"""Recurrent layers in Triton: a short convolution, the gated delta rule and state spaces, token by token or in chunks.

Members with a single token are computed in place: a program owns a part of one row's state in one head. If several of
them are consecutive tokens of one row, the first one's program computes them all. Longer members are computed in chunks
of 64 tokens. What a token adds to a state depends on the additions of the tokens before it. This gives a triangular
system for each chunk and head; all systems are inverted in parallel, and then a program goes through a member's chunks
with a part of the state in registers. The host never waits, and a CUDA graph can capture a step of single tokens.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import Convolution, DeltaGates, SpaceGates
from thothy_ai.kernels.triton.tiles import power_of_two, row_tile

_CHUNK = 64  # tokens
_EPS = tl.constexpr(1e-6)  # added to the squared length of a query or a key
_CHANNELS = 256  # per program that convolves, of one warp: 16 bytes for each thread
_TOKENS = 16  # per program that convolves a longer member
_DECODE_VALUES = 16  # of a head per program of one warp, whose sums wait for no other warp
_DELTA_VALUES = 64  # per program that scans by the delta rule: what a warp group multiplies at a time
_SPACE_VALUES = 32  # per program that scans a state space
_NORMED = 1024  # numbers per program
_DOT = 16  # the smallest size of a matrix product


def convolve(
    x: Tensor, convolution: Convolution, inputs: Tensor, batch: AttentionBatch, out: Tensor | None = None
) -> Tensor:
    """The convolution of x [T, channels] over each row's tokens -> [T, channels], in `out` if that is given. `inputs`
    [slots, kept, channels] has the kept inputs before the step, and is updated to those after it.
    """
    out = x.new_empty(x.shape) if out is None else out
    channels, width = convolution.weight.shape
    parts = triton.cdiv(channels, _CHANNELS)
    state = (inputs, x.stride(0), inputs.stride(0), channels, width, _CHANNELS)
    settings = (convolution.silu, *convolution.weight.stride())
    weights = (convolution.weight, convolution.bias)
    if batch.num_decode:
        _convolve_kernel[(batch.num_decode, parts)](
            out, x, *weights, batch.rows, batch.context_lens, batch.num_decode, *state, *settings, num_warps=1
        )
    if longer := batch.query_lens[batch.num_decode :]:
        rows, ends, starts = _longer(batch)
        grid = (len(longer), triton.cdiv(max(longer), _TOKENS), parts)
        _convolve_longer_kernel[grid](out, x, *weights, rows, ends, starts, *state, *settings, _TOKENS, num_warps=1)
        _keep_inputs_kernel[(len(longer), parts)](x, rows, ends, starts, *state, num_warps=1)
    return out


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
    width = power_of_two(keys, _DOT)
    if batch.num_decode:
        block = min(power_of_two(values), _DECODE_VALUES)
        _delta_kernel[(triton.cdiv(values, block), heads, batch.num_decode)](
            out, *given, memory, batch.rows, batch.context_lens, batch.num_decode, *strides, *sizes, block, width,
            num_warps=1,
        )  # fmt: skip
    if longer := batch.query_lens[batch.num_decode :]:
        rows, ends, starts = _longer(batch)
        factors = mixed.new_empty(4, heads, tokens, dtype=torch.float32)
        systems = (*mixed.new_empty(2, tokens, heads, _CHUNK), factors, tokens)
        exact = mixed.dtype == torch.float32
        grid = (len(longer), triton.cdiv(max(longer), _CHUNK), heads)
        _systems_kernel[grid](
            *systems, *given, starts, *strides, key_heads, heads, keys, width, _CHUNK, exact, num_warps=4
        )
        block = min(power_of_two(values, _DOT), _DELTA_VALUES)
        _scan_kernel[(len(longer), heads, triton.cdiv(values, block))](
            out, mixed, *systems, memory, rows, ends, starts, strides[0], *sizes, block, width, _CHUNK, exact,
            num_warps=4, num_stages=1 if exact else 2,
        )  # fmt: skip
    return out


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
    width = power_of_two(keys, _DOT)
    if batch.num_decode:
        block = min(power_of_two(values), _DECODE_VALUES)
        _space_kernel[(triton.cdiv(values, block), heads, batch.num_decode)](
            out, *given, batch.rows, batch.context_lens, batch.num_decode, *sizes, block, width, num_warps=1
        )
    if longer := batch.query_lens[batch.num_decode :]:
        block, exact = min(power_of_two(values, _DOT), _SPACE_VALUES), mixed.dtype == torch.float32
        _space_scan_kernel[(len(longer), heads, triton.cdiv(values, block))](
            out,
            *given,
            *_longer(batch),
            *sizes,
            block,
            width,
            _CHUNK,
            exact,
            num_warps=4,
            num_stages=1 if exact else 2,
        )
    return out


def gate_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, groups, N] float32 times silu(gate) [T, groups * N], normalized group by group, times weight [groups * N]
    -> [T, groups * N] in the gate's type.
    """
    tokens, groups, size = x.shape
    out = gate.new_empty(tokens, groups * size)
    tile = row_tile(size)
    _gate_rms_norm_kernel[(tokens, groups)](
        out, x, gate, weight, gate.stride(0), eps, size, tile.width, num_warps=tile.warps
    )
    return out


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, H, N] float32, normalized head by head, times weight [N] and silu(gate) [T, H * N] -> [T, H * N] in the
    gate's type.
    """
    tokens, heads, size = x.shape
    out = gate.new_empty(tokens, heads * size)
    width = power_of_two(size)
    some = max(1, min(power_of_two(heads), _NORMED // width))
    _gated_rms_norm_kernel[(tokens, triton.cdiv(heads, some))](
        out, x, gate, weight, gate.stride(0), eps, heads, size, some, width, num_warps=4
    )
    return out


def _longer(batch: AttentionBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and ends of the members with several tokens, and where their tokens begin in the step."""
    first = batch.num_decode
    return batch.rows[first:], batch.context_lens[first:], batch.query_starts[first:]


@triton.jit
def _goes_on(rows, ends, member, members):
    """Whether the member's token follows the one before it in the step, in the same row."""
    there = (member > 0) & (member < members)
    row = tl.load(rows + member, mask=there, other=-1)
    before = tl.load(rows + member - 1, mask=there, other=-2)
    end = tl.load(ends + member, mask=there, other=0)
    return (row == before) & (end == tl.load(ends + member - 1, mask=there, other=0) + 1)


@triton.jit
def _run_length(rows, ends, member, members):
    """The number of consecutive tokens of one row from this member on; 0 if it follows another of the row."""
    count = 0
    going = _goes_on(rows, ends, member, members) == 0
    while going:
        count += 1
        going = _goes_on(rows, ends, member + count, members)
    return count


@triton.jit
def _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS: tl.constexpr, KEPT: tl.constexpr):
    """Inputs at places `at` of a run of tokens that begins at `first`; earlier ones are the kept inputs, or zeros."""
    new = tl.load(x + (first + at) * x_token + channel, mask=inside & (at >= 0), other=0.0)
    old = tl.load(
        kept + (KEPT + at) * CHANNELS + channel, mask=inside & (at < 0) & (at >= -KEPT) & (fresh == 0), other=0.0
    )
    return (new + old).to(tl.float32)


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def _appended(items, item):
    return items + (item,)  # noqa: RUF005  Triton knows no starred tuples


@triton.jit(
    do_not_specialize=["members"],
    do_not_specialize_on_alignment=["rows", "ends"],
)
def _convolve_kernel(
    out, x, weight, bias, rows, ends, members, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr,
    OF_CHANNEL: tl.constexpr, OF_TAP: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == 1
    kept = inputs + row * slot
    first = member.to(tl.int64)
    run = _run_length(rows, ends, member, members)
    for count in range(run):
        total = tl.zeros([BLOCK], tl.float32)
        if bias is not None:
            total += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        for tap in tl.static_range(WIDTH):
            at = count + tap - (WIDTH - 1)
            value = _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
            factor = tl.load(weight + channel * OF_CHANNEL + tap * OF_TAP, mask=inside, other=0.0)
            total += value * factor.to(tl.float32)
        if SILU:
            total = _silu(total)
        tl.store(out + (first + count) * CHANNELS + channel, total.to(out.dtype.element_ty), mask=inside)
    if run > 0:
        _keep(x, x_token, kept, first, run, fresh, channel, inside, CHANNELS, WIDTH)


@triton.jit
def _keep(x, x_token, kept, first, count, fresh, channel, inside, CHANNELS: tl.constexpr, WIDTH: tl.constexpr):
    """Replace the kept inputs by the last of a run of `count` tokens; older ones move up."""
    for place in tl.static_range(WIDTH - 1):
        at = count - (WIDTH - 1) + place
        value = _input(x, x_token, kept, first, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
        tl.store(kept + place * CHANNELS + channel, value.to(kept.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize_on_alignment=["rows", "ends", "starts"])
def _convolve_longer_kernel(
    out, x, weight, bias, rows, ends, starts, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr,
    OF_CHANNEL: tl.constexpr, OF_TAP: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Each input is read once, and kept for the tokens that follow."""
    member, begin = tl.program_id(0), tl.program_id(1) * TOKENS
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    first = tl.load(starts + member).to(tl.int64)
    count = tl.load(starts + member + 1) - first
    if begin < count:
        row = tl.load(rows + member).to(tl.int64)
        fresh = tl.load(ends + member) == count
        least = tl.zeros([BLOCK], tl.float32)
        if bias is not None:
            least += tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
        seen, factors = (), ()
        for tap in tl.static_range(WIDTH):
            factor = tl.load(weight + channel * OF_CHANNEL + tap * OF_TAP, mask=inside, other=0.0)
            factors = _appended(factors, factor.to(tl.float32))
            if tap > 0:
                at = begin + tap - WIDTH
                value = _input(x, x_token, inputs + row * slot, first, at, fresh, channel, inside, CHANNELS, WIDTH - 1)
                seen = _appended(seen, value)
        for each in tl.static_range(TOKENS):
            at = begin + each
            new = tl.load(x + (first + at) * x_token + channel, mask=inside & (at < count), other=0.0)
            seen, total = _appended(seen, new.to(tl.float32)), least
            for tap in tl.static_range(WIDTH):
                total += seen[each + tap] * factors[tap]
            if SILU:
                total = _silu(total)
            place = out + (first + at) * CHANNELS + channel
            tl.store(place, total.to(out.dtype.element_ty), mask=inside & (at < count))


@triton.jit(do_not_specialize_on_alignment=["rows", "ends", "starts"])
def _keep_inputs_kernel(
    x, rows, ends, starts, inputs, x_token, slot,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Runs after the convolution, which reads the inputs replaced here."""
    member = tl.program_id(0)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(rows + member).to(tl.int64)
    first = tl.load(starts + member).to(tl.int64)
    count = tl.load(starts + member + 1) - first
    fresh = tl.load(ends + member) == count
    _keep(x, x_token, inputs + row * slot, first, count, fresh, channel, channel < CHANNELS, CHANNELS, WIDTH)


@triton.jit
def _softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def _gates(learned, forgotten, rate, offset, token, learned_token, forgotten_token, head, there):
    """The logarithms of decays, and the learning rates, of one head's tokens; both are 0 for missing tokens."""
    a = tl.load(forgotten + token * forgotten_token + head, mask=there, other=0.0).to(tl.float32)
    b = tl.load(learned + token * learned_token + head, mask=there, other=0.0).to(tl.float32)
    decay = tl.load(rate + head) * _softplus(a + tl.load(offset + head))
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
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + key_at[None, :]
    inside = (value_at < VALUES)[:, None] & (key_at < KEYS)[None, :]
    kept = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    state = tl.where(fresh, 0.0, kept)
    leads = _goes_on(rows, ends, member, members) == 0
    state = _delta_token(
        state, out, mixed, learned, forgotten, rate, offset, member.to(tl.int64), head, value_at, key_at, leads,
        mixed_token, learned_token, forgotten_token, KEY_HEADS, HEADS, VALUES, KEYS,
    )  # fmt: skip
    run = _run_length(rows, ends, member, members)  # a loop that goes on by what it reads can't carry tensors
    for token in range(member.to(tl.int64) + 1, member.to(tl.int64) + run):
        state = _delta_token(
            state, out, mixed, learned, forgotten, rate, offset, token, head, value_at, key_at, True,
            mixed_token, learned_token, forgotten_token, KEY_HEADS, HEADS, VALUES, KEYS,
        )  # fmt: skip
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside & leads)


@triton.jit
def _dot(a, b, dtype, EXACT: tl.constexpr):
    """a @ b in float32, multiplied in the model's type, or by three products of TF32 if that is float32."""
    if EXACT:
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="tf32x3")
    else:
        product = tl.dot(a.to(dtype), b.to(dtype))
    return product


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
    """For one chunk and head: the inverse of its system, times the learning rates, the scores of its queries, and what
    the scan multiplies each token's products by: those of queries and keys, which have any length here, with the state
    before the chunk, those of keys with the state after it, and what is left of the former state.
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
        seen = tl.where(later >= earlier, _dot(q, tl.trans(k), dtype, EXACT) * since * of_q[:, None], 0.0)
        between = (token[:, None] * HEADS + head) * CHUNK + earlier
        tl.store(scores + between, seen.to(dtype), mask=there[:, None])
        system = _dot(k, tl.trans(k), dtype, EXACT) * since * (learns * of_k)[:, None]
        # Combine the inverses of two diagonal blocks, with the block between them, into that of a block twice as large.
        inverse = tl.where(later == earlier, 1.0, 0.0) - tl.where(
            (later % 2 == 1) & (later == earlier + 1), system, 0.0
        )
        for level in range(1, 6):
            apart = ((later >> level) % 2 == 1) & (later >> level == (earlier >> level) + 1)
            lower = tl.where(apart, system, 0.0)
            if EXACT:
                inverse -= tl.dot(tl.dot(inverse, lower, input_precision="tf32x3"), inverse, input_precision="tf32x3")
            else:
                inverse -= tl.dot(tl.dot(inverse, lower, input_precision="tf32"), inverse, input_precision="tf32")
        tl.store(solved + between, (inverse * learns[None, :]).to(dtype), mask=there[:, None])


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["rows", "ends", "starts"])
def _scan_kernel(
    out, mixed, solved, scores, factors, tokens, memory, rows, ends, starts, mixed_token,
    KEY_HEADS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A member's chunks, one after the other, for some of a head's values.

    All is transposed, values by tokens: the state, and each result in turn, is the left operand of the next product and
    stays in registers. The right operands stay as they were loaded, in shared memory; products are multiplied by what
    queries and keys lack.
    """
    member, head = tl.program_id(0), tl.program_id(1)
    value_at, column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    begin = tl.load(starts + member).to(tl.int64)
    end = tl.load(starts + member + 1).to(tl.int64)
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == end - begin
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + column[None, :]
    inside = (value_at < VALUES)[:, None] & (column < KEYS)[None, :]
    state = tl.load(place, mask=inside & (fresh == 0), other=0.0).to(tl.float32)
    dtype = mixed.dtype.element_ty
    source = mixed + head // (HEADS // KEY_HEADS) * KEYS
    v_source = mixed + 2 * KEY_HEADS * KEYS + head * VALUES
    own, part = factors + head.to(tl.int64) * tokens, HEADS * tokens
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
        missing = v.to(tl.float32) - of_k * _dot(state, tl.trans(k), dtype, EXACT)
        added = _dot(missing, tl.trans(inverse), dtype, EXACT)
        read = of_q * _dot(state, tl.trans(q), dtype, EXACT) + _dot(added, tl.trans(seen), dtype, EXACT)
        tl.store(out + (token[None, :] * HEADS + head) * VALUES + value_at[:, None], read, mask=has_value)
        state = left * state + _dot(added_by * added, k, dtype, EXACT)
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside)


@triton.jit
def _gated_rms_norm_kernel(
    out, x, gate, weight, gate_token, eps,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SOME: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * SOME + tl.arange(0, SOME))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (head < HEADS) & (column < SIZE)
    at = head * SIZE + column
    wide = tl.load(x + token * HEADS * SIZE + at, mask=inside, other=0.0)
    factor = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
    opened = _silu(tl.load(gate + token * gate_token + at, mask=inside, other=0.0).to(tl.float32))
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 1) / SIZE + eps)[:, None] * factor * opened
    tl.store(out + token * HEADS * SIZE + at, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_rms_norm_kernel(out, x, gate, weight, gate_token, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    at = group * SIZE + column
    whole = tl.num_programs(1) * SIZE
    wide = tl.load(x + token * whole + at, mask=inside, other=0.0)
    wide *= _silu(tl.load(gate + token * gate_token + at, mask=inside, other=0.0).to(tl.float32))
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps) * factor
    tl.store(out + token * whole + at, normed.to(out.dtype.element_ty), mask=inside)


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
    step = _softplus(tl.load(steps + token * steps_token + head).to(tl.float32) + tl.load(offset + head))
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
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + key_at[None, :]
    inside = (value_at < VALUES)[:, None] & (key_at < KEYS)[None, :]
    kept = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    state = tl.where(fresh, 0.0, kept)
    leads = _goes_on(rows, ends, member, members) == 0
    state = _space_token(
        state, out, mixed, steps, rate, offset, skip, member.to(tl.int64), head, value_at, key_at, leads,
        mixed_token, steps_token, GROUPS, HEADS, VALUES, KEYS,
    )  # fmt: skip
    run = _run_length(rows, ends, member, members)  # a loop that goes on by what it reads can't carry tensors
    for token in range(member.to(tl.int64) + 1, member.to(tl.int64) + run):
        state = _space_token(
            state, out, mixed, steps, rate, offset, skip, token, head, value_at, key_at, True,
            mixed_token, steps_token, GROUPS, HEADS, VALUES, KEYS,
        )  # fmt: skip
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside & leads)


@triton.jit(do_not_specialize_on_alignment=["rows", "ends", "starts"])
def _space_scan_kernel(
    out, mixed, steps, rate, offset, skip, memory, rows, ends, starts, mixed_token, steps_token,
    GROUPS: tl.constexpr, HEADS: tl.constexpr, VALUES: tl.constexpr, KEYS: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A member's chunks, one after the other, for some of a head's values."""
    member, head = tl.program_id(0), tl.program_id(1)
    value_at, column = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    begin = tl.load(starts + member).to(tl.int64)
    end = tl.load(starts + member + 1).to(tl.int64)
    row = tl.load(rows + member).to(tl.int64)
    fresh = tl.load(ends + member) == end - begin
    place = memory + (row * HEADS + head) * VALUES * KEYS + value_at[:, None] * KEYS + column[None, :]
    inside = (value_at < VALUES)[:, None] & (column < KEYS)[None, :]
    state = tl.load(place, mask=inside & (fresh == 0), other=0.0).to(tl.float32)
    dtype = mixed.dtype.element_ty
    k_source = mixed + HEADS * VALUES + head // (HEADS // GROUPS) * KEYS
    v_source = mixed + head * VALUES
    later, earlier = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
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
        step = tl.where(there, _softplus(dt + tl.load(offset + head)), 0.0)
        decay = tl.load(rate + head) * step
        ages = tl.cumsum(decay, 0)
        since = tl.exp(tl.where(later >= earlier, ages[:, None] - ages[None, :], 0.0))
        seen = tl.where(later >= earlier, _dot(q, tl.trans(k), dtype, EXACT) * since, 0.0)
        added = step[:, None] * v
        read = tl.exp(ages)[:, None] * _dot(q, tl.trans(state), dtype, EXACT) + _dot(seen, added, dtype, EXACT)
        read += tl.load(skip + head) * v
        tl.store(out + (token[:, None] * HEADS + head) * VALUES + value_at[None, :], read, mask=has_value)
        last = tl.sum(decay, 0)
        left = tl.exp(last - ages)[:, None]
        state = tl.exp(last) * state + _dot(tl.trans(added), left * k.to(tl.float32), dtype, EXACT)
    tl.store(place, state.to(memory.dtype.element_ty), mask=inside)
