"""Weak references to tensors, as vLLM's `weak_ref_tensor`: views that don't keep the memory that they show."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = {1: "|i1", 2: "<i2", 4: "<i4", 8: "<i8"}  # by bytes: the interface knows no bfloat16


class _Memory:
    """Device memory as numba's CUDA array interface describes it, version 3."""

    def __init__(self, tensor: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": _INTEGERS[tensor.itemsize],
            "data": (tensor.data_ptr(), False),
            "strides": None,
            "version": 3,
        }


def weak_ref_tensor(tensor: Tensor) -> Tensor:
    """The same values, as long as nothing else is written there. For a contiguous tensor on a GPU.

    What only the launch after a graph reads may be overwritten by later graphs of the same pool: nothing needs to own
    it.
    """
    if not tensor.is_contiguous():
        raise ValueError(f"strides {tensor.stride()} of {tuple(tensor.shape)} are not contiguous")
    return torch.as_tensor(_Memory(tensor), device=tensor.device).view(tensor.dtype)
