"""What the experts' two matmuls share: their weights in any format, read tile by tile, and rows of tokens."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from thothy_ai.kernels.experts import MXFP4_BLOCK, ExpertMatrix, Mxfp4
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.experts.tiles import ExpertTile
from thothy_ai.kernels.triton.experts.unpack_mxfp4 import arranged, in_float32, unpack_mxfp4
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
_BLOCK = tl.constexpr(MXFP4_BLOCK)


Rows = Tensor | Quantized


class Operand(NamedTuple):
    """Matrices [M, N, K]: of each expert one, or its gate and its up.

    `values` are [M, N, K], or [M, N, K / 2] of MXFP4; `scales` [M * N] float32 of fp8, [M, K / 32, N] uint8 of MXFP4.
    """

    values: Tensor
    scales: Tensor | None
    outputs: int
    inputs: int
    mxfp4: bool
    in_float32: bool = False  # how MXFP4 is unpacked

    @classmethod
    def of(cls, matrix: ExpertMatrix, parts: int) -> Operand:
        """Of a matrix [E, parts * N, K]."""
        if isinstance(matrix, Mxfp4):
            experts, rows, half = matrix.blocks.shape
            shape = (experts * parts, rows // parts)
            blocks, block_scales = arranged(Mxfp4(matrix.blocks.view(*shape, half), matrix.scales.view(*shape, -1)))
            return cls(blocks, block_scales, rows // parts, 2 * half, mxfp4=True, in_float32=in_float32(matrix))
        values = matrix if isinstance(matrix, Tensor) else matrix.values
        scales = None if isinstance(matrix, Tensor) else matrix.scales.flatten()
        experts, rows, inputs = values.shape
        return cls(values.view(experts * parts, rows // parts, inputs), scales, rows // parts, inputs, mxfp4=False)

    @property
    def quantizes(self) -> bool:
        """Whether activations are quantized too."""
        return self.scales is not None and not self.mxfp4

    def tiles(self, tile: ExpertTile, parts: int) -> TensorDescriptor:
        """The values of `parts` matrices at a time in blocks of this tile, read by the tensor memory accelerator."""
        return TensorDescriptor.from_tensor(self.values, [parts, tile.outputs, tile.step // (1 + self.mxfp4)])

    def scale_tiles(self, tile: ExpertTile, parts: int) -> TensorDescriptor | Tensor | None:
        """The scales of such a block of MXFP4; all scales of fp8."""
        if self.scales is None or not self.mxfp4:
            return self.scales
        return TensorDescriptor.from_tensor(self.scales, [parts, tile.step // MXFP4_BLOCK, tile.outputs])


def parts_of(x: Rows) -> tuple[Tensor, Tensor | None]:
    """Values, and scales if there are any."""
    return (x, None) if isinstance(x, Tensor) else (x.values, x.scales)


def options(weight: Operand, tile: ExpertTile) -> dict[str, int | bool]:
    """What both kernels are compiled for."""
    return {
        "MXFP4": weight.mxfp4 + weight.in_float32,
        "TOKENS": tile.tokens,
        "SHORT": tile.short,
        "OUTPUTS": tile.outputs,
        "STEP": tile.step,
        "WHOLE": weight.inputs % tile.step == 0,
        "STAGES": tile.stages,
        "WEIGHTS_FIRST": tile.weights_first,
        "num_warps": tile.warps,
    }


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
    place,
    PARTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    MXFP4: tl.constexpr,  # 0: another format; 1: unpacked to bfloat16; 2: to float32
    dtype: tl.constexpr,
):
    """[PARTS * OUTPUTS, STEP] of matrices [N, K], `matrix` and the next ones, from `row` and column `place` on.

    As they are stored, or what MXFP4 stands for.
    """
    if MXFP4:
        packed = tl.reshape(values.load([matrix, row, place // 2]), [PARTS * OUTPUTS, STEP // 2])
        exponents = tl.permute(scales.load([matrix, place // _BLOCK, row]), [0, 2, 1])
        exponents = tl.reshape(exponents, [PARTS * OUTPUTS, STEP // _BLOCK])
        loaded = unpack_mxfp4(packed, exponents, MXFP4 == 2).to(dtype)
    else:
        loaded = tl.reshape(values.load([matrix, row, place]), [PARTS * OUTPUTS, STEP])
    return loaded


@triton.jit
def scaled(sums, x_scales, token, weight_scales, bias, first, inside, OUTPUTS: tl.constexpr):
    """sums [T, N] times the scales of both sides, if activations have any, and the bias of rows `first` and on."""
    at = first + tl.arange(0, OUTPUTS)
    if x_scales is not None:
        sums *= tl.load(x_scales + token)[:, None] * tl.load(weight_scales + at, mask=inside, other=0.0)[None, :]
    if bias is not None:
        sums += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    return sums
