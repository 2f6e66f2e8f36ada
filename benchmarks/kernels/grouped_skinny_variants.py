"""Variants of the matmul of few rows and an integer weight with groups."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from thothy_ai.kernels.grouped import LANES, GroupedInts
from thothy_ai.kernels.triton.arrival import last_to_arrive
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
_LANES = tl.constexpr(LANES)


def multiply(x, weight: GroupedInts, bias, out, *, outputs_tile, tokens, split, stages, warps, done, unpack, scaling):
    rows, inputs = x.shape
    n = weight.outputs
    spans = weight.words.shape[1] // LANES
    share = triton.cdiv(spans, split)
    parts = triton.cdiv(spans, share)
    partials = out.new_empty(parts, rows, n, dtype=torch.float32) if parts > 1 else None
    per = weight.numbers_per_word
    slices = min(per, weight.group // LANES)
    kernel = _kernel[(triton.cdiv(n, outputs_tile), parts)](
        out,
        partials,
        done,
        x,
        weight.words,
        weight.scales,
        weight.zeros,
        bias,
        rows,
        n,
        inputs,
        spans,
        x.stride(0),
        share,
        weight.group,
        OUTPUTS=outputs_tile,
        TOKENS=tokens,
        BITS=weight.bits,
        SLICES=slices,
        PARTS=parts,
        WHOLE=inputs == spans * LANES * per,
        STAGES=stages,
        CHUNK=min(tokens, 1024 * warps // outputs_tile),
        UNPACK=unpack,
        SCALING=scaling,
        num_warps=warps,
    )
    return kernel


@triton.jit
def _unpack(packed, place: tl.constexpr, BITS: tl.constexpr, UNPACK: tl.constexpr, dtype: tl.constexpr):
    number = (packed >> (place * BITS)) & ((1 << BITS) - 1)
    if _INTERPRETED:
        return number.to(tl.float32)
    if UNPACK == 0 or BITS == 8:
        return number.to(tl.float32).to(dtype)
    if UNPACK == 3:
        return number.to(tl.int8).to(dtype)
    if dtype == tl.bfloat16:
        return (number | 0x4300).to(tl.int16).to(tl.bfloat16, bitcast=True) - 128.0
    return (number | 0x6400).to(tl.int16).to(tl.float16, bitcast=True) - 1024.0


@triton.jit
def _magic(packed, place: tl.constexpr, BITS: tl.constexpr, dtype: tl.constexpr):
    """128 + number as bf16, 1024 + number as fp16."""
    number = (packed >> (place * BITS)) & ((1 << BITS) - 1)
    if dtype == tl.bfloat16:
        return (number | 0x4300).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return (number | 0x6400).to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit(do_not_specialize=["rows", "share"])
def _kernel(
    out,
    partials,
    done,
    x,
    words,
    scales,
    zeros,
    bias,
    rows,
    outputs,
    inputs,
    spans,
    x_row,
    share,
    group,
    OUTPUTS: tl.constexpr,
    TOKENS: tl.constexpr,
    BITS: tl.constexpr,
    SLICES: tl.constexpr,
    PARTS: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    CHUNK: tl.constexpr,
    UNPACK: tl.constexpr,
    SCALING: tl.constexpr,
):
    PER: tl.constexpr = 32 // BITS
    SPAN: tl.constexpr = _LANES * PER
    dtype: tl.constexpr = x.dtype.element_ty
    SHIFT: tl.constexpr = 128.0 if dtype == tl.bfloat16 else 1024.0
    tile = tl.program_id(0)
    part = tl.program_id(1)
    row = tl.arange(0, TOKENS)
    lane = tl.arange(0, _LANES)
    output = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = tl.minimum(output, outputs - 1)
    weights = words + inside.to(tl.int64)[:, None] * (spans * _LANES) + lane[None, :]
    tokens = x + row.to(tl.int64)[:, None] * x_row + lane[None, :]
    present = (row < rows)[:, None]
    sums = tl.zeros([OUTPUTS, TOKENS], tl.float32)

    begin = part * share
    for span in tl.range(begin, tl.minimum(begin + share, spans), num_stages=STAGES):
        packed = tl.load(weights + span * _LANES)
        for first in tl.static_range(0, PER, SLICES):
            g = (span * SPAN + first * _LANES) // group
            scale = tl.load(scales + g * outputs + inside)
            if zeros is not None:
                zero = tl.load(zeros + g * outputs + inside).to(tl.float32)
            else:
                zero = tl.full([OUTPUTS], 1 << (BITS - 1), tl.float32)
            if SCALING == 0:
                partial = tl.zeros([OUTPUTS, TOKENS], tl.float32)
            else:
                partial = sums
            for place in tl.static_range(SLICES):
                column = span * SPAN + (first + place) * _LANES
                if WHOLE:
                    b = tl.load(tokens + column, mask=present, other=0.0)
                else:
                    b = tl.load(tokens + column, mask=present & (lane < inputs - column)[None, :], other=0.0)
                if UNPACK == 2:
                    a = _magic(packed, first + place, BITS, dtype)
                    a = a - (zero + SHIFT).to(dtype)[:, None]
                else:
                    a = _unpack(packed, first + place, BITS, UNPACK, dtype)
                    a = a - zero.to(a.dtype)[:, None]
                if SCALING == 1:
                    a = a * scale.to(a.dtype)[:, None]
                if _INTERPRETED:
                    b = b.to(tl.float32)
                partial = tl.dot(a, tl.trans(b), partial)
            if SCALING == 0:
                sums += partial * scale.to(tl.float32)[:, None]
            else:
                sums = partial

    if PARTS == 1:
        _store(out, tl.trans(sums), row, output, bias, rows, outputs)
    else:
        target = partials + ((part * rows + row).to(tl.int64) * outputs)[:, None] + output[None, :]
        tl.store(target, tl.trans(sums), mask=(row < rows)[:, None] & (output < outputs)[None, :])
        if last_to_arrive(done + tile, PARTS):
            for start in range(0, rows, CHUNK):
                merged_row = start + tl.arange(0, CHUNK)
                merged = _merged(partials, merged_row, output, rows, outputs, PARTS)
                _store(out, merged, merged_row, output, bias, rows, outputs)


@triton.jit
def _merged(partials, row, output, rows, outputs, PARTS: tl.constexpr):
    source = partials + (row.to(tl.int64) * outputs)[:, None] + output[None, :]
    inside = (row < rows)[:, None] & (output < outputs)[None, :]
    sums = tl.load(source, mask=inside, other=0.0, cache_modifier=".cg")
    for _part in tl.static_range(1, PARTS):
        source += rows.to(tl.int64) * outputs
        sums += tl.load(source, mask=inside, other=0.0, cache_modifier=".cg")
    return sums


@triton.jit
def _store(out, sums, row, output, bias, rows, outputs):
    if bias is not None:
        sums += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    target = out + (row.to(tl.int64) * outputs)[:, None] + output[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])
