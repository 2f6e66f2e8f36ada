"""Memory that kernels must not touch, around what they may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder

_MARGIN = 1 << 18  # bytes
_FILL = 0xFF  # NaN in every type of floats, and -1


class Margins:
    """Puts tensors amid margins of NaN; in Triton's interpreter a kernel that reads or writes one fails."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []

    def around(self, tensor: Tensor) -> Tensor:
        """A copy, the only part of its buffer that kernels may touch."""
        content = tensor.contiguous().flatten().view(torch.uint8)
        buffer = torch.full((content.numel() + 2 * _MARGIN,), _FILL, dtype=torch.uint8, device=tensor.device)
        self._buffers.append(buffer)
        inner = buffer[_MARGIN:-_MARGIN]
        inner.copy_(content)
        return inner.view(tensor.dtype).view(tensor.shape)

    def check(self) -> None:
        """No margin was written to."""
        for buffer in self._buffers:
            assert bool((buffer[:_MARGIN] == _FILL).all())
            assert bool((buffer[-_MARGIN:] == _FILL).all())

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on, in the interpreter."""
        load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

        def watched_load(builder: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
            self._assert_outside(pointers, mask)
            return load(builder, pointers, mask, *rest, **options)

        def watched_store(builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self._assert_outside(pointers, mask)
            return store(builder, pointers, value, mask, *rest)

        monkeypatch.setattr(InterpreterBuilder, "create_masked_load", watched_load)
        monkeypatch.setattr(InterpreterBuilder, "create_masked_store", watched_store)

    def _assert_outside(self, pointers: Any, mask: Any) -> None:
        places = np.asarray(pointers.data)[np.asarray(mask.data).astype(bool)].astype("int64")
        for buffer in self._buffers:
            begin, end = buffer.data_ptr(), buffer.data_ptr() + buffer.numel()
            for first in (begin, end - _MARGIN):
                assert not ((places >= first) & (places < first + _MARGIN)).any(), "a margin is touched"
