"""Linear layers, in the form that the device multiplies fastest; chosen once, at load."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

_PACKED_FOR_ROWS = 16  # measured: a layout packed for 8 rows or more serves 1 to 512 rows equally well


class Linear(Protocol):
    """x [T, in] -> [T, out]. `num_bytes` is what it holds beside weights that it shares."""

    num_bytes: int

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        ...


class DenseLinear:
    """torch's own GEMM: cuBLAS on a GPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, shared: bool) -> None:
        self._weight, self._bias = weight, bias
        self.num_bytes = 0 if shared else _num_bytes(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        return functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """oneDNN over a prepacked float32 weight: up to three times as fast as the plain GEMM at few rows on a CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
        self._bias = bias
        self.num_bytes = _num_bytes(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return out


def linear(weight: Tensor, bias: Tensor | None = None, *, shared: bool = False) -> Linear:
    """The layer of weight [out, in] and bias [out]; `shared` says that others hold the weight too (a tied embedding).

    A packed layer holds its own copy and keeps no reference to `weight`.
    """
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return PackedLinear(weight, bias)
    return DenseLinear(weight, bias, shared=shared)


def _num_bytes(weight: Tensor, bias: Tensor | None) -> int:
    return weight.nbytes + (0 if bias is None else bias.nbytes)
