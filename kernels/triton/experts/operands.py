"""The experts' weights as matmuls read them, tile by tile, in any of their formats."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from thothy_ai.kernels.experts import MXFP4_BLOCK, ExpertMatrix
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.experts.tiles import ExpertTile
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
_BLOCK = tl.constexpr(MXFP4_BLOCK)


class Operand(NamedTuple):
    """A matrix [E, N, K] as one of E * N rows.

    `values` [E * N, K], or [E * N, K / 2] of MXFP4; `scales` [E * N] float32 of fp8, [E * N, K / 32] uint8 of MXFP4.
    """

    values: Tensor
    scales: Tensor | None
    outputs: int
    inputs: int
    mxfp4: bool

    @classmethod
    def of(cls, matrix: ExpertMatrix) -> Operand:
        """The same numbers."""
        if isinstance(matrix, Tensor):
            return cls(matrix.flatten(0, 1), None, *matrix.shape[1:], mxfp4=False)
        if isinstance(matrix, Quantized):
            return cls(matrix.values.flatten(0, 1), matrix.scales.flatten(), *matrix.values.shape[1:], mxfp4=False)
        _, outputs, half = matrix.blocks.shape
        return cls(matrix.blocks.flatten(0, 1), matrix.scales.flatten(0, 1), outputs, 2 * half, mxfp4=True)

    @property
    def quantizes(self) -> bool:
        """Whether activations are quantized too."""
        return self.scales is not None and not self.mxfp4

    def tiles(self, tile: ExpertTile) -> TensorDescriptor:
        """The values, read in blocks of this tile by the tensor memory accelerator."""
        return TensorDescriptor.from_tensor(self.values, [tile.outputs, tile.step // (2 if self.mxfp4 else 1)])


@triton.jit
def no_sums(TOKENS: tl.constexpr, OUTPUTS: tl.constexpr, WEIGHTS_FIRST: tl.constexpr):
    """Zeros [T, N], or [N, T] where weights come first."""
    rows: tl.constexpr = OUTPUTS if WEIGHTS_FIRST else TOKENS
    columns: tl.constexpr = TOKENS if WEIGHTS_FIRST else OUTPUTS
    return tl.zeros([rows, columns], tl.float32)


@triton.jit
def multiply_add(weights, tokens, sums, WEIGHTS_FIRST: tl.constexpr):
    """Add the products of weights [N, K] and tokens [T, K] to sums [T, N], or [N, T] where weights come first."""
    if _INTERPRETED:
        weights, tokens = weights.to(tl.float32), tokens.to(tl.float32)
    if WEIGHTS_FIRST:
        sums = tl.dot(weights, tl.trans(tokens), sums, input_precision="ieee")
    else:
        sums = tl.dot(tokens, tl.trans(weights), sums, input_precision="ieee")
    return sums


@triton.jit
def load_weights(values, scales, row, rows, place, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr,
                 MXFP4: tl.constexpr, dtype: tl.constexpr):  # fmt: skip
    """[OUTPUTS, STEP] from row `row` and column `place` on: as they are stored, or what MXFP4 stands for.

    Of the rows only the first `rows` count.
    """
    if MXFP4:
        packed = values.load([row, place // 2])
        numbers = tl.reshape(tl.join(_e2m1(packed & 15), _e2m1(packed >> 4)), [OUTPUTS, STEP // _BLOCK, _BLOCK])
        each = tl.arange(0, OUTPUTS)
        block = place // _BLOCK + tl.arange(0, STEP // _BLOCK)
        factors = tl.load(
            scales + (row + each).to(tl.int64)[:, None] * (INPUTS // _BLOCK) + block[None, :],
            mask=(each < rows)[:, None] & (block < INPUTS // _BLOCK)[None, :],
            other=0,
        )
        loaded = tl.reshape(numbers * _e8m0(factors)[:, :, None], [OUTPUTS, STEP]).to(dtype)
    else:
        loaded = values.load([row, place])
    return loaded


@triton.jit
def _e2m1(number):
    """float32 of the low four bits: a sign, two bits of exponent and one of mantissa."""
    bits = number.to(tl.uint32)
    tiny = (((bits & 8) << 28) | ((bits & 7) << 22)).to(tl.float32, bitcast=True)  # the same, with float32's bias
    return tiny * 8.507059173023462e37  # 2^126


@triton.jit
def _e8m0(exponent):
    """float32 of an exponent alone; 0 stands for 2^-127."""
    bits = exponent.to(tl.uint32) << 23
    return tl.where(exponent == 0, 5.877471754111438e-39, bits.to(tl.float32, bitcast=True))
