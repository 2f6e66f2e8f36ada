"""Numbers of 8 bits with a scale for each row: fp8 (e4m3: Micikevicius et al., "FP8 Formats for Deep Learning", 2022)
or int8.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest finite value of e4m3
INT8_MAX = 127.0
NARROWEST_BLOCK = 32  # inputs that tensor cores multiply at a time
TINY = 1e-30  # rows with nothing larger count as zero, so that a scale is never subnormal


class Quantized(NamedTuple):
    """`values` [..., N] fp8, or int8 where that is said, and `scales` [..., 1] float32: values * scales is what was
    quantized.
    """

    values: Tensor
    scales: Tensor


class BlockQuantized(NamedTuple):
    """`values` [N, K] fp8 and `scales` [ceil(N / height), ceil(K / width)] float32, one for each block of `height` by
    `width` numbers: values * scales is what was quantized. Blocks at the ends may be cut off.

    A width is a power of two, at least `NARROWEST_BLOCK`.
    """

    values: Tensor
    scales: Tensor
    height: int
    width: int
