"""Where a window begins, in kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_seen(position, WINDOW: tl.constexpr, CHUNKED: tl.constexpr):
    """`AttentionParams.first_seen`, which may be below 0, of a window."""
    return position // WINDOW * WINDOW if CHUNKED else position + 1 - WINDOW
