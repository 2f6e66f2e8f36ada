"""fp8 numbers (e4m3: Micikevicius et al., "FP8 Formats for Deep Learning", 2022) with a scale for each row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest finite value of e4m3
TINY = 1e-30  # rows with nothing larger count as zero, so that a scale is never subnormal


class Quantized(NamedTuple):
    """`values` [..., N] fp8 and `scales` [..., 1] float32: values * scales is what was quantized."""

    values: Tensor
    scales: Tensor
