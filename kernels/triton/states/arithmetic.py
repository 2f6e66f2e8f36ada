"""What the kernels of several recurrent layers compute."""

from __future__ import annotations

import triton
import triton.language as tl

MIN_DOT = 16  # the smallest size of a matrix product


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def dot(a, b, dtype, EXACT: tl.constexpr):
    """a @ b in float32, multiplied in the model's type, or by three products of TF32 if that is float32."""
    if EXACT:
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="tf32x3")
    else:
        product = tl.dot(a.to(dtype), b.to(dtype))
    return product
