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
    """Matrices [M, N, K]: of each expert one, or its gate and its up.

    `values` are [M, N, K], or [M, N, K / 2] of MXFP4; `scales` [M * N] float32 of fp8, [M * N, K / 32] uint8 of MXFP4.
    """

    values: Tensor
    scales: Tensor | None
    outputs: int
    inputs: int
    mxfp4: bool

    @classmethod
    def of(cls, matrix: ExpertMatrix, parts: int) -> Operand:
        """Of a matrix [E, parts * N, K]."""
        if isinstance(matrix, Tensor):
            values, scales, mxfp4 = matrix, None, False
        elif isinstance(matrix, Quantized):
            values, scales, mxfp4 = matrix.values, matrix.scales.flatten(), False
        else:
            values, scales, mxfp4 = matrix.blocks, matrix.scales.flatten(0, 1), True
        experts, rows, width = values.shape
        outputs = rows // parts
        return cls(values.view(experts * parts, outputs, width), scales, outputs, width * (1 + mxfp4), mxfp4)

    @property
    def quantizes(self) -> bool:
        """Whether activations are quantized too."""
        return self.scales is not None and not self.mxfp4

    def tiles(self, tile: ExpertTile, parts: int) -> TensorDescriptor:
        """The values of so many matrices at a time in blocks of this tile, read by the tensor memory accelerator."""
        return TensorDescriptor.from_tensor(self.values, [parts, tile.outputs, tile.step // (1 + self.mxfp4)])


@triton.jit
def multiply_add(left, right, sums):
    """Add the products of left [M, K] and right [K, N] to sums [M, N]."""
    if _INTERPRETED:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, sums, input_precision="ieee")


@triton.jit
def load_rows(source, column, present, place, INPUTS: tl.constexpr, WHOLE: tl.constexpr):
    """Tokens [T, STEP] from column `place` on; zeros where none is present, and past the last column."""
    inside = present[:, None] if WHOLE else present[:, None] & (column < INPUTS - place)[None, :]
    return tl.load(source + place, mask=inside, other=0.0)


@triton.jit
def load_weights(
    values,
    scales,
    matrix,
    row,
    rows,
    place,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    MXFP4: tl.constexpr,
    dtype: tl.constexpr,
):
    """[PARTS * OUTPUTS, STEP] of matrices [ROWS, INPUTS], `matrix` and the next ones, from `row` and column `place` on.

    As they are stored, or what MXFP4 stands for. Of each matrix's rows only the first `rows` count.
    """
    if MXFP4:
        packed = values.load([matrix, row, place // 2])
        numbers = tl.join(_e2m1(packed & 15), _e2m1(packed >> 4))
        numbers = tl.reshape(numbers, [PARTS * OUTPUTS, STEP // _BLOCK, _BLOCK])
        each = tl.arange(0, PARTS * OUTPUTS)
        at = (matrix + each // OUTPUTS) * ROWS + row + each % OUTPUTS
        block = place // _BLOCK + tl.arange(0, STEP // _BLOCK)
        factors = tl.load(
            scales + at.to(tl.int64)[:, None] * (INPUTS // _BLOCK) + block[None, :],
            mask=(each % OUTPUTS < rows)[:, None] & (block < INPUTS // _BLOCK)[None, :],
            other=0,
        )
        loaded = tl.reshape(numbers * _e8m0(factors)[:, :, None], [PARTS * OUTPUTS, STEP]).to(dtype)
    else:
        loaded = tl.reshape(values.load([matrix, row, place]), [PARTS * OUTPUTS, STEP])
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
