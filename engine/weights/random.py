"""Random weights for a folder without weights, for benchmarks: speed depends on shapes, not on values.

A folder asks for them with an empty file `random_weights`, which no real model has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

MARKER = "random_weights"


class RandomWeights:
    """A tensor source with every tensor, drawn on the device: ones for norms, others normal with a deviation of 0.02.

    `on_drawn` is called with the bytes so far before each tensor.
    """

    folder = None

    def __init__(
        self, device: torch.device, dtype: torch.dtype, on_drawn: Callable[[int], None] = lambda _: None
    ) -> None:
        self.device, self.dtype, self._on_drawn = device, dtype, on_drawn
        self._drawn = 0
        self._generator = torch.Generator(device).manual_seed(0)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape."""
        self._on_drawn(self._drawn)
        fresh = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._drawn += fresh.nbytes
        return fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02, generator=self._generator)

    weight = dense = tensor  # the configuration knows which weights are packed

    def stored(self, _name: str, /, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Random bits, but fp8 numbers are below 1, and scales are all 0.01.

        Bytes are near 127, which gives numbers and scales of a usual size in MXFP4.
        """
        self._on_drawn(self._drawn)
        if dtype is None:
            fresh = torch.full(shape, 0.01, dtype=torch.float16, device=self.device)
        elif dtype == torch.uint8:
            fresh = torch.randint(120, 128, shape, dtype=dtype, device=self.device, generator=self._generator)
        else:
            count = math.prod(shape) * dtype.itemsize
            most = 0x38 if dtype.is_floating_point else 256  # fp8 below 1
            drawn = torch.randint(most, (count,), dtype=torch.uint8, device=self.device, generator=self._generator)
            fresh = drawn.view(dtype).view(shape)
        self._drawn += fresh.nbytes
        return fresh

    def holds(self, _name: str, /, *_shape: int) -> bool:
        """Never: optional tensors are left out."""
        return False


def wants_random_weights(folder: Path) -> bool:
    """Whether the folder asks for random weights."""
    return (folder / MARKER).is_file()
