"""MXFP4 to bfloat16, which holds its numbers exactly: a few instructions for two bytes at a time.

A number's three bits of magnitude, put where a bfloat16 has the end of its exponent and the beginning of its mantissa,
are that number times 2^-126, the one below the least normal number included. The scale takes that back.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from thothy_ai.kernels.experts import MXFP4_BLOCK, Mxfp4
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_HALF = tl.constexpr(MXFP4_BLOCK // 2)
_MOST = 128  # the largest exponent of a scale whose product with 2^126 is a bfloat16

# Of bytes i and i + 1: into the upper halves of two words, from where even and odd numbers are taken.
_TWO_BYTES = """
    prmt.b32 t, $4, 0, {bytes};
    shr.b32 u, t, 2;
    and.b32 u, u, 0x01C001C0;
    shl.b32 v, t, 4;
    and.b32 v, v, 0x80008000;
    or.b32 u, u, v;
    mul.bf16x2 {even}, u, {scale};
    shr.b32 u, t, 6;
    and.b32 u, u, 0x01C001C0;
    and.b32 v, t, 0x80008000;
    or.b32 u, u, v;
    mul.bf16x2 {odd}, u, {scale};
"""
_FOUR_BYTES = tl.constexpr(
    "{ .reg .b32 t, u, v;"
    + _TWO_BYTES.format(bytes="0x1404", even="$0", odd="$2", scale="$5")
    + _TWO_BYTES.format(bytes="0x3424", even="$1", odd="$3", scale="$6")
    + "}"
)


def arranged(weight: Mxfp4) -> Mxfp4:
    """A copy of [E, N, K] as the kernels read it: scales by their place in K first, [E, K / 32, N]; and of each 16
    bytes of 32 numbers the four that one thread multiplies beside each other.

    Of the tensor cores' operand, a thread has numbers 2q and 2q + 1 of each eight, q being its place among four.
    """
    experts, rows, width = weight.blocks.shape
    threads = weight.blocks.view(experts, rows, width // (MXFP4_BLOCK // 2), 4, 4).transpose(-1, -2)
    scales = weight.scales.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return Mxfp4(threads.reshape(experts, rows, width), scales)


def in_float32(weight: Mxfp4) -> bool:
    """Whether the kernels take the long way: where they are interpreted, and for scales that hardly occur."""
    return INTERPRETED or bool((weight.scales > _MOST).any())


@triton.jit
def unpack_mxfp4(packed, exponents, IN_FLOAT32: tl.constexpr):
    """bfloat16 or float32 [N, K] of packed [N, K / 2], arranged, and exponents [N, K / 32], both uint8."""
    rows: tl.constexpr = packed.shape[0]
    width: tl.constexpr = packed.shape[1]
    if IN_FLOAT32:
        scale = tl.broadcast_to(_float32(exponents)[:, :, None], [rows, width // _HALF, _HALF])
        scale = tl.reshape(scale, [rows, width])
        numbers = tl.join(_e2m1(packed & 15) * scale, _e2m1(packed >> 4) * scale)
    else:
        scale = ((exponents.to(tl.int16) + 126) << 7).to(tl.bfloat16, bitcast=True)
        scale = tl.broadcast_to(scale[:, :, None], [rows, width // _HALF, _HALF])
        even, odd = tl.inline_asm_elementwise(
            _FOUR_BYTES,
            "=r,=r,=r,=r,r,r,r",
            [packed, tl.reshape(scale, [rows, width])],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
        numbers = tl.join(even, odd)
    numbers = tl.reshape(numbers, [rows, width // _HALF, 4, 4, 2])
    return tl.reshape(tl.permute(numbers, [0, 1, 3, 2, 4]), [rows, 2 * width])


@triton.jit
def _e2m1(number):
    """float32 of the low four bits: a sign, two bits of exponent and one of mantissa."""
    bits = number.to(tl.uint32)
    tiny = (((bits & 8) << 28) | ((bits & 7) << 22)).to(tl.float32, bitcast=True)  # the same, with float32's bias
    return tiny * 8.507059173023462e37  # 2^126


@triton.jit
def _float32(exponent):
    """float32 of an exponent alone; 0 stands for 2^-127."""
    bits = exponent.to(tl.uint32) << 23
    return tl.where(exponent == 0, 5.877471754111438e-39, bits.to(tl.float32, bitcast=True))
