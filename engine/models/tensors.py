"""Where a model's tensors come from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.errors import UnsupportedModelError
from thothy_ai.kernels.fp8 import Quantized

Weight = Tensor | Quantized  # plain, or packed with a scale for each row


class TensorSource(Protocol):
    """Tensors under the names that transformers saves them by, on `device` and in their type already."""

    @property
    def device(self) -> torch.device:
        """Where they are."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of plain tensors."""
        ...

    @property
    def folder(self) -> Path | None:
        """The Hugging Face folder that they are read from; None if they are made."""
        ...

    def has(self, name: str, /) -> bool:
        """Whether there is a tensor of this name."""
        ...

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, which must have `shape`; ModelLoadError otherwise."""
        ...

    def exact(self, name: str, *shape: int) -> Tensor:
        """As `tensor`, in float32 whatever the model's type."""
        ...

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype) -> Tensor:
        """A tensor of a packed weight, in the type that it is stored in, which must be `dtype`."""
        ...

    def weight(self, name: str, *shape: int) -> Weight:
        """The weight [out, in] of a linear layer, as it is stored."""
        ...


def merged(names: list[str], parts: list[Weight]) -> Weight:
    """One weight of several with as many inputs, below each other; all are plain or all are packed."""
    if len(parts) == 1:
        return parts[0]
    plain = [part for part in parts if isinstance(part, Tensor)]
    packed = [part for part in parts if isinstance(part, Quantized)]
    if plain and packed:
        raise UnsupportedModelError(f"of {', '.join(names)} some weights are packed and some are not")
    if plain:
        return torch.cat(plain)
    values = torch.cat([part.values.view(torch.uint8) for part in packed]).view(packed[0].values.dtype)
    return Quantized(values, torch.cat([part.scales for part in packed]))
