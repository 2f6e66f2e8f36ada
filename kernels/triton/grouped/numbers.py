"""Numbers of integer weights, from packed words to floating-point numbers in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


@triton.jit
def scale_and_zero(factor, SCALES: tl.constexpr, BITS: tl.constexpr):
    """A factor's scale float32 and zero int32; those of scales alone are in the middle."""
    if factor.dtype == tl.int32:
        scale = factor.to(tl.int16).to(SCALES, bitcast=True).to(tl.float32)
        zero = factor >> 16
    else:
        scale = factor.to(tl.float32)
        zero = tl.full(factor.shape, 1 << (BITS - 1), tl.int32)
    return scale, zero


@triton.jit
def slice_of(packed, zero, place: tl.constexpr, BITS: tl.constexpr, dtype: tl.constexpr):
    """Slice `place` of packed words [N, L], less zero [N, 1] int32: [N, 2 * L], exact in `dtype`."""
    ROWS: tl.constexpr = packed.shape[0]
    SIZE: tl.constexpr = 2 * packed.shape[1]
    ONES: tl.constexpr = (1 << BITS) - 1
    both = (packed >> (place * BITS)) & (ONES * 0x00010001)
    if _INTERPRETED or BITS == 8 or dtype == tl.float32:
        low, high = ((both & ONES) - zero).to(tl.float32), ((both >> 16) - zero).to(tl.float32)
        if not _INTERPRETED:
            low, high = low.to(dtype), high.to(dtype)
    else:
        both = _less(both, zero, dtype)
        low = both.to(tl.int16).to(dtype, bitcast=True)
        high = (both >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.reshape(tl.join(low, high), [ROWS, SIZE])


@triton.jit
def _less(both, zero, dtype: tl.constexpr):
    """Two numbers below 128 in the halves of words, less zero: two of `dtype` in each word.

    No conversion is needed: put into the mantissa of 128 (bf16) or 1024 (fp16) a number is that much more.
    """
    zeros = zero | (zero << 16)
    if dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "{.reg .b32 less; mov.b32 less, 0xBF80BF80; fma.rn.bf16x2 $0, $2, less, $1;}",
            "=r,r,r",
            [both | 0x43004300, zeros | 0x43004300],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    return tl.inline_asm_elementwise(
        "sub.f16x2 $0, $1, $2;",
        "=r,r,r",
        [both | 0x64006400, zeros | 0x64006400],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
