"""Attention of query rows to a run of tokens, by online softmax: what programs of decode attention do again and again.

Tokens past the end of a run are loaded as its last one: no load waits for a mask, and no slot is read that was never
written.

A tile of fp8 reaches tensor cores' registers byte by byte: they want neighbours in pairs of 16 bits. So fp8 is loaded
as int16, pairs of neighbouring dimensions, which `ldmatrix` moves as they are. A pair is unpacked in registers, into
float16 (bfloat16 takes twice the instructions), and even dimensions and odd ones are multiplied on their own. float16
holds probabilities times values up to 65,504, and loses digits of values below 1e-4.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from thothy_ai.kernels.fp8 import FP8_MAX, TINY
from thothy_ai.kernels.paged import AttentionParams
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_FP8_MAX = tl.constexpr(FP8_MAX)
LOG2_E = tl.constexpr(1.4426950408889634)
_TINY = tl.constexpr(TINY)
_INTERPRETED = tl.constexpr(INTERPRETED)


def exponent_scale(params: AttentionParams, head_dim: int) -> float:
    """What kernels multiply scores by, to make them exponents of two or, for `soft_capped`, scores over the cap."""
    scale = params.scale_of(head_dim)
    return scale * math.log2(math.e) if params.soft_cap is None else scale / params.soft_cap


@triton.jit
def attend(
    query,  # [ROWS, DIM_PAD]
    rest,  # of queries [ROWS, REST_PAD], or None
    keys, values, table,
    begin, end,
    oldest,  # [ROWS], first token that a row sees
    kv_block, kv_slot,
    scale,  # to powers of two
    ROWS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr,
    REST: tl.constexpr,  # numbers of a key after those that are its value, or None: values are apart
    REST_PAD: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    AHEAD: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """Attention of ROWS queries to tokens [begin, end) of a block table, and its log2-sum-exp2 per row.

    WINDOW is None, or rows see tokens from `oldest` on only; those that see none have a result of 0 and -inf. SOFT_CAP
    is None, or `scale` leads to scores over the cap.
    """
    if _INTERPRETED:
        query = query.to(tl.float32)
        if REST is not None:
            rest = rest.to(tl.float32)
    total = tl.zeros([ROWS, DIM_PAD], tl.float32)
    m_i = tl.full([ROWS], float("-inf"), tl.float32)
    l_i = tl.zeros([ROWS, TILE], tl.float32)
    # Tiles wait for their block numbers, which are loaded as far ahead of them as they are of their use.
    for first in tl.range(begin, end, TILE, num_stages=2 * AHEAD + 1):
        block, slot, inside = _places(table, first, end, PAGE, TILE)
        at = block * kv_block + slot * kv_slot
        key = _tile(keys, at, DIM, DIM_PAD).to(query.dtype)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee")
        if REST is not None:
            key_rest = _tile(keys + DIM, at, REST, REST_PAD).to(query.dtype)
            scores = tl.dot(rest, tl.trans(key_rest), scores, input_precision="ieee")
        scores *= scale
        p, alpha, m_i = _probabilities(scores, first, inside, oldest, m_i, TILE, WINDOW, SOFT_CAP)
        l_i = l_i * alpha[:, None] + p
        value = key
        if REST is None:
            value = _tile(values, at, DIM, DIM_PAD).to(query.dtype)
        total = tl.dot(p.to(query.dtype), value, total * alpha[:, None], input_precision="ieee")
    l_i = nonzero(tl.sum(l_i, 1), WINDOW)
    return total / l_i[:, None], m_i + tl.log2(l_i)


@triton.jit
def attend_fp8(
    query,  # [ROWS, DIM_PAD]
    keys, values, key_scales, value_scales, table,
    begin, end,
    oldest,  # [ROWS], first token that a row sees
    kv_block, kv_slot, scale_block, scale_slot, scale,
    ROWS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    AHEAD: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr,
):  # fmt: skip
    """The same over an fp8 cache, whose strides are even."""
    PAIRS: tl.constexpr = DIM_PAD // 2
    query, unit = _fitted(query)
    even, odd = tl.split(tl.reshape(query, [ROWS, PAIRS, 2]))
    factor = (unit * scale)[:, None]
    keys = keys.to(tl.pointer_type(tl.int16))
    values = values.to(tl.pointer_type(tl.int16))
    total_even = tl.zeros([ROWS, PAIRS], tl.float32)
    total_odd = tl.zeros([ROWS, PAIRS], tl.float32)
    m_i = tl.full([ROWS], float("-inf"), tl.float32)
    l_i = tl.zeros([ROWS, TILE], tl.float32)
    for first in tl.range(begin, end, TILE, num_stages=2 * AHEAD + 1):
        block, slot, inside = _places(table, first, end, PAGE, TILE)
        at = block * (kv_block // 2) + slot * (kv_slot // 2)
        scale_at = block * scale_block + slot * scale_slot
        low, high = _unpack_fp8(_tile(keys, at, DIM // 2, PAIRS))
        scores = tl.dot(even, tl.trans(low.to(even.dtype)), input_precision="ieee")
        scores = tl.dot(odd, tl.trans(high.to(odd.dtype)), scores, input_precision="ieee")
        scores = scores * tl.load(key_scales + scale_at)[None, :] * factor
        p, alpha, m_i = _probabilities(scores, first, inside, oldest, m_i, TILE, WINDOW, SOFT_CAP)
        l_i = l_i * alpha[:, None] + p
        # times the largest stored value, so that float16 holds the product
        p = (p * (tl.load(value_scales + scale_at) * _FP8_MAX)[None, :]).to(even.dtype)
        low, high = _unpack_fp8(_tile(values, at, DIM // 2, PAIRS))
        total_even = tl.dot(p, low.to(even.dtype), total_even * alpha[:, None], input_precision="ieee")
        total_odd = tl.dot(p, high.to(odd.dtype), total_odd * alpha[:, None], input_precision="ieee")
    l_i = nonzero(tl.sum(l_i, 1), WINDOW)
    return tl.interleave(total_even, total_odd) / (l_i * _FP8_MAX)[:, None], m_i + tl.log2(l_i)


@triton.jit
def _places(table, first, end, PAGE: tl.constexpr, TILE: tl.constexpr):
    """Block and slot of the tokens of a tile, and which of them lie before `end`; others have the last one's place."""
    token = first + tl.arange(0, TILE)
    inside = token < end
    token = tl.minimum(token, end - 1).to(tl.uint32)  # so that a page is found by a shift
    return tl.load(table + token // PAGE).to(tl.uint32).to(tl.int64), token % PAGE, inside


@triton.jit
def _tile(base, at, WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr):
    """[TILE, WIDTH_PAD]: WIDTH numbers from each place, then zeros."""
    column = tl.arange(0, WIDTH_PAD)
    pointers = base + at[:, None] + column[None, :]
    return tl.load(pointers, mask=(column < WIDTH)[None, :], other=0) if WIDTH_PAD > WIDTH else tl.load(pointers)


@triton.jit
def _probabilities(
    scores, first, inside, oldest, m_i, TILE: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr
):
    """2 to the scores relative to their new maximum; alpha, what earlier sums are multiplied by; the new maximum."""
    if SOFT_CAP is not None:
        scores = soft_capped(scores, SOFT_CAP)
    visible = inside[None, :]
    if WINDOW is not None:
        visible = visible & ((first + tl.arange(0, TILE))[None, :] >= oldest[:, None])
    scores = tl.where(visible, scores, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(scores, 1))
    base = finite_base(m_new, WINDOW)
    return tl.exp2(scores - base[:, None]), tl.exp2(m_i - base), m_new


@triton.jit
def soft_capped(scores_over_cap, SOFT_CAP: tl.constexpr):
    """cap * tanh(scores / cap), to powers of two."""
    return (2.0 * tl.sigmoid(2.0 * scores_over_cap) - 1.0) * (SOFT_CAP * LOG2_E)


@triton.jit
def finite_base(m_i, WINDOW: tl.constexpr):
    """What exponents are relative to: the maximum, or 0 in rows that see nothing through a window: theirs is -inf."""
    if WINDOW is not None:
        m_i = tl.where(m_i == float("-inf"), 0.0, m_i)
    return m_i


@triton.jit
def nonzero(l_i, WINDOW: tl.constexpr):
    """The sums of rows, or 1 in those that see nothing through a window."""
    if WINDOW is not None:
        l_i = tl.where(l_i == 0.0, 1.0, l_i)
    return l_i


@triton.jit
def _fitted(query):
    """Rows over powers of two, so that float16 holds them, and those powers; float32 stays float32."""
    wide = query.to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(wide), 1), _TINY)
    unit = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return (wide / unit[:, None]).to(tl.float32 if query.dtype == tl.float32 else tl.float16), unit


@triton.jit
def _unpack_fp8(pairs):
    """The low and the high byte of int16 as numbers of e4m3, in float16."""
    if _INTERPRETED:
        low = (pairs & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        high = ((pairs >> 8) & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        low, high = tl.inline_asm_elementwise(
            """
            {
                .reg .b32 bytes;
                .reg .b16 low, high;
                prmt.b32 bytes, $2, 0, 0x3120;
                mov.b32 {low, high}, bytes;
                cvt.rn.f16x2.e4m3x2 $0, low;
                cvt.rn.f16x2.e4m3x2 $1, high;
            }
            """,
            "=r,=r,r",
            [pairs],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    return low, high
