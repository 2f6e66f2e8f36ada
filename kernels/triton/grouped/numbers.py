"""Numbers of integer weights, from packed words to floating-point numbers in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
# 4-bit numbers of both halves of a word become floating-point numbers as in Marlin (Frantar et al., 2024,
# arXiv:2408.11743): one instruction takes their bits and puts the exponent of 128 (bf16) or 1024 (fp16) above them,
# which makes them that much more; the next subtracts it, and with it 8 or the zeros.
_CONVERT = "{{.reg .b32 t; shr.u32 t, $1, {shift}; lop3.b32 t, t, 0x000F000F, {exponents}, 0xEA; {less}}}"
_BF16, _FP16 = "0x43004300", "0x64006400"
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def _of_places(exponents: str, less: str) -> tl.constexpr:
    """The instructions for each place of a number in a half."""
    return tl.constexpr(tuple(_CONVERT.format(shift=shift, exponents=exponents, less=less) for shift in (0, 4, 8, 12)))


_BF16_LESS_8 = _of_places(
    _BF16, ".reg .b32 a, b; mov.b32 a, 0x3F803F80; mov.b32 b, 0xC308C308; fma.rn.bf16x2 $0, t, a, b;"
)
_BF16_LESS_ZEROS = _of_places(_BF16, ".reg .b32 a; mov.b32 a, 0xBF80BF80; fma.rn.bf16x2 $0, $3, a, t;")
_FP16_LESS_8 = _of_places(_FP16, ".reg .b32 b; mov.b32 b, 0x64086408; sub.f16x2 $0, t, b;")
_FP16_LESS_ZEROS = _of_places(_FP16, "sub.f16x2 $0, t, $3;")


@triton.jit
def scale_and_zero(factor, SCALES: tl.constexpr, BITS: tl.constexpr, OFFSETS: tl.constexpr):
    """A factor's scale float32 and zero int32: in the middle for scales alone, 0 beside an offset."""
    if factor.dtype == tl.int64:
        scale = factor.to(tl.int32).to(tl.float32, bitcast=True)
        zero = (factor >> 32).to(tl.int32)
    elif factor.dtype == tl.int32:
        scale = factor.to(tl.int16).to(SCALES, bitcast=True).to(tl.float32)
        zero = tl.zeros(factor.shape, tl.int32) if OFFSETS else factor >> 16
    else:
        scale = factor.to(tl.float32)
        zero = tl.full(factor.shape, 1 << (BITS - 1), tl.int32)
    return scale, zero


@triton.jit
def offset_of(factor, SCALES: tl.constexpr):
    return (factor >> 16).to(tl.int16).to(SCALES, bitcast=True).to(tl.float32)


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


@triton.jit
def slice_in_place(packed, zeros, place: tl.constexpr, dtype: tl.constexpr):
    """Slice `place` of packed words [N, L] of 4-bit numbers, less `zeros` or 8: [N, 2 * L], exact in `dtype`.

    `zeros` [N, 1] are `wide_zeros`, or None. The result must be an operand of `mma.sync`: there a thread has
    neighbouring inputs in one register, and makes both of one word. After the join of `slice_of` Triton would load
    operands in an order that costs a move for each.
    """
    ROWS: tl.constexpr = packed.shape[0]
    LANES: tl.constexpr = packed.shape[1]
    if _INTERPRETED:
        zero = tl.full([ROWS, 1], 8, tl.int32) if zeros is None else zeros & 127
        values = slice_of(packed, zero, place, 4, dtype)
    else:
        twice = tl.reshape(tl.broadcast_to(packed[:, :, None], [ROWS, LANES, 2]), [ROWS, 2 * LANES])
        if zeros is None:
            LESS_8: tl.constexpr = _BF16_LESS_8[place] if dtype == tl.bfloat16 else _FP16_LESS_8[place]
            values = tl.inline_asm_elementwise(LESS_8, "=r,r,r", [twice], dtype=dtype.value, is_pure=True, pack=2)
        else:
            LESS_ZEROS: tl.constexpr = _BF16_LESS_ZEROS[place] if dtype == tl.bfloat16 else _FP16_LESS_ZEROS[place]
            values = tl.inline_asm_elementwise(
                LESS_ZEROS, "=r,r,r,r,r", [twice, zeros], dtype=dtype.value, is_pure=True, pack=2
            )
    return values


@triton.jit
def wide_zeros(factor, OFFSETS: tl.constexpr, dtype: tl.constexpr):
    """The zeros of factors, 0 beside offsets, as `slice_in_place` takes them: in both halves of a word, 128 more
    in bf16 or 1024 more in fp16.
    """
    if OFFSETS:
        zeros = tl.zeros(factor.shape, tl.int32)
    elif factor.dtype == tl.int64:
        zero = (factor >> 32).to(tl.int32)
        zeros = zero | (zero << 16)
    elif _INTERPRETED:
        zeros = (factor >> 16) | (factor & -65536)
    else:
        zeros = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, 0, 0x3232;", "=r,r", [factor], dtype=tl.int32, is_pure=True, pack=1
        )
    return zeros | (0x43004300 if dtype == tl.bfloat16 else 0x64006400)
