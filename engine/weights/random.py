"""Random weights for a folder that has none: what benchmarks run, since speed depends on shapes and not on values.

A folder asks for them with an empty file `random_weights`, which no real model has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

MARKER = "random_weights"


class RandomWeights:
    """A tensor source with every tensor, drawn on the device: ones for norms, otherwise normal, deviating by 0.02.

    `on_drawn` is told the bytes so far before each tensor.
    """

    folder = None

    def __init__(
        self, device: torch.device, dtype: torch.dtype, on_drawn: Callable[[int], None] = lambda _: None
    ) -> None:
        self.device, self.dtype, self._on_drawn = device, dtype, on_drawn
        self._drawn = 0
        self._generator = torch.Generator(device).manual_seed(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape."""
        self._on_drawn(self._drawn)
        fresh = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._drawn += fresh.nbytes
        return fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02, generator=self._generator)

    def has(self, _name: str, /) -> bool:
        """It has them all."""
        return True

    def exact(self, name: str, *shape: int) -> Tensor:
        """As `tensor`, in float32."""
        return self.tensor(name, *shape).float()

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype) -> Tensor:
        """A new tensor of this shape: bytes near 127, which are numbers and scales of a usual size in MXFP4."""
        del name
        return torch.randint(120, 128, shape, dtype=dtype, device=self.device, generator=self._generator)

    def weight(self, name: str, *shape: int) -> Tensor:
        """As `tensor`: random weights are never packed."""
        return self.tensor(name, *shape)


def wants_random_weights(folder: Path) -> bool:
    """Whether the folder asks for them."""
    return (folder / MARKER).is_file()
