"""Philox 4x32-10 and Gumbel noise in Triton, on native 32-bit words; results equal the reference's bit for bit."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words for each counter; all uint32."""
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high2, low2 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def line_words(first, seed_low, seed_high, position, LINE: tl.constexpr):
    """Words [N, LINE] of tokens first[n] + 0 to LINE - 1; first [N] are multiples of 4, the key and position uint32."""
    quad = (first[:, None] // 4 + tl.arange(0, LINE // 4)[None, :]).to(tl.uint32)
    zero = tl.zeros_like(quad)
    w0, w1, w2, w3 = philox(quad, zero + position, zero, zero, seed_low, seed_high)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))  # [N, LINE / 4, 2, 2], tokens in order
    return tl.reshape(words, [first.shape[0], LINE])


@triton.jit
def gumbel(words):
    """Standard Gumbel noise, float32: -log of -log1p(-u), where u is uniform.

    log1p(-u) is log(1 - u) plus the rounding error of 1 - u divided by 1 - u. The error is 0 from u = 1/2 on, and below
    that 1 / (1 - u) is close enough to 1 + u. The outer logarithm can be the hardware's, which costs an ulp or two.
    """
    u = tl.minimum(words.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10, 0.99999994)
    rest = 1.0 - u
    exponential = (rest - 1.0 + u) * (1.0 + u) - tl.log(rest)
    return -tl.log(exponential) if _INTERPRETED else -libdevice.fast_logf(exponential)
