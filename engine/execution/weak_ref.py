"""Weak references to tensors, like vLLM's `weak_ref_tensor`: views that don't keep their memory alive."""

from __future__ import annotations

import torch
from torch import Tensor

_INTEGERS = {1: "|i1", 2: "<i2", 4: "<i4", 8: "<i8"}  # by element size: the interface has no bfloat16


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
    """A view of a contiguous tensor on a GPU, valid until its memory is overwritten.

    A tensor that only the launch right after a graph reads needs no owner: later graphs of the pool can overwrite it.
    """
    if not tensor.is_contiguous():
        raise ValueError(f"strides {tensor.stride()} of {tuple(tensor.shape)} are not contiguous")
    return torch.as_tensor(_Memory(tensor), device=tensor.device).view(tensor.dtype)
