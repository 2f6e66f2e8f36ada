"""Linear layers, in the form that is fastest on the device or smallest; chosen once, at load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import BlockQuantized, Quantized
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.reference.quantize import dequantize

_PACKED_FOR_ROWS = 16  # measured: a layout packed for 8 rows or more serves 1 to 512 rows equally well
FP8_MULTIPLE = 16  # cuBLAS multiplies fp8 matrices only if both sizes are multiples of it

Activations = Tensor | Quantized


class Linear(Protocol):
    """x [T, in] -> [T, out]. `num_bytes` excludes weights that it shares.

    `takes_fp8`: it multiplies fp8, so the operation before it should also quantize.
    """

    num_bytes: int

    @property
    def takes_fp8(self) -> bool:
        """Whether it quantizes activations that are not quantized yet."""
        ...

    def __call__(self, x: Activations) -> Tensor: ...


class LinearFormat(Protocol):
    """Makes the layer of weight [out, in] and bias [out] or none, and keeps no reference to a weight it converts."""

    def __call__(self, weight: Tensor, bias: Tensor | None = None, /) -> Linear: ...


class DenseLinear:
    """torch's own GEMM: cuBLAS on a GPU."""

    takes_fp8 = False

    def __init__(self, weight: Tensor, bias: Tensor | None, *, shared: bool) -> None:
        self._weight, self._bias = weight, bias
        self.num_bytes = 0 if shared else bytes_of(weight, bias)

    def __call__(self, x: Activations) -> Tensor:
        return functional.linear(plain(x, self._weight.dtype), self._weight, self._bias)

    def into(self, x: Tensor, out: Tensor) -> None:
        """Multiply x [T, in], with the result in `out` [T, out]."""
        if self._bias is None:
            torch.mm(x, self._weight.T, out=out)
        else:
            torch.addmm(self._bias, x, self._weight.T, out=out)


class PackedLinear:
    """oneDNN over a prepacked float32 weight: up to three times as fast as the plain GEMM at few rows on a CPU."""

    takes_fp8 = False

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
        self._bias = bias
        self.num_bytes = bytes_of(weight, bias)

    def __call__(self, x: Activations) -> Tensor:
        x = plain(x, torch.float32)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


class Fp8Linear:
    """An fp8 weight with a scale for each output, times activations with a scale for each token (W8A8).

    Both sizes of the weight are multiples of 16. Results are of `dtype`. Activations that are not quantized yet get
    quantized here.
    """

    takes_fp8 = True

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> None:
        self._weight, self._bias = weight, bias
        self._quantize = operations.quantize_fp8
        self._multiply = operations.fp8_matmul(weight, bias, dtype)
        self.num_bytes = bytes_of(*weight, bias)

    def __call__(self, x: Activations) -> Tensor:
        return self._multiply(self._quantize(x) if isinstance(x, Tensor) else x)


class Fp8BlockLinear:
    """An fp8 weight with a scale for each block, times activations with one for each token and width of a block.

    Results are of `dtype`.
    """

    takes_fp8 = False  # its activations are not quantized by token

    def __init__(self, weight: BlockQuantized, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._quantize = operations.quantize_fp8_groups
        self._multiply = operations.block_matmul(weight, bias, dtype)
        self.num_bytes = bytes_of(weight.values, weight.scales, bias)

    def __call__(self, x: Activations) -> Tensor:
        return self._multiply(self._quantize(plain(x, self._dtype), self._weight.width))


@dataclass(frozen=True, slots=True)
class Fp8Format:
    """fp8 where the weight's shape allows it, dense elsewhere; quantized and multiplied by the model's operations."""

    operations: Operations

    def __call__(self, weight: Tensor, bias: Tensor | None = None, /) -> Linear:
        """Make the layer; needs memory only for the weight and its fp8 copy."""
        if not fits_fp8(weight):
            return linear(weight, bias)
        return Fp8Linear(self.operations.quantize_fp8(weight), bias, weight.dtype, self.operations)


class SeparateLinears:
    """Layers of the same inputs whose weights can't be joined; their results [T, out] are concatenated."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self._layers = tuple(layers)
        self.takes_fp8 = all(layer.takes_fp8 for layer in layers)
        self.num_bytes = sum(layer.num_bytes for layer in layers)

    def __call__(self, x: Activations) -> Tensor:
        return torch.cat([layer(x) for layer in self._layers], dim=-1)


def multiply_into(layer: Linear, x: Tensor, out: Tensor) -> None:
    """Multiply x [T, in], with the result in `out` [T, out]: only a dense layer needs no copy."""
    if isinstance(layer, DenseLinear):
        layer.into(x, out)
    else:
        out.copy_(layer(x))


def fits_fp8(weight: Tensor) -> bool:
    """Whether the device multiplies an fp8 weight of this shape."""
    return not any(size % FP8_MULTIPLE for size in weight.shape)


def prepared(x: Tensor, layer: Linear, operations: Operations) -> Activations:
    """x [T, in] as the layer multiplies it."""
    return operations.quantize_fp8(x) if layer.takes_fp8 else x


def linear(weight: Tensor, bias: Tensor | None = None, /, *, shared: bool = False) -> Linear:
    """The layer in the weight's own type; `shared` says that others hold the weight too (a tied embedding).

    A packed layer holds its own copy and keeps no reference to `weight`.
    """
    if packs(weight.device, weight.dtype):
        return PackedLinear(weight, bias)
    return DenseLinear(weight, bias, shared=shared)


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether plain layers are packed there, and thus hold copies of weights that they would otherwise share."""
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()


def plain(x: Activations, dtype: torch.dtype) -> Tensor:
    """x [T, in] as it is, or dequantized to `dtype`."""
    return x if isinstance(x, Tensor) else dequantize(x).to(dtype)


def bytes_of(*tensors: Tensor | None) -> int:
    """The bytes of all tensors that are not None."""
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
