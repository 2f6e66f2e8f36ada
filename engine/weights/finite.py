"""Values that are NaN or infinite, in tensors of any floating-point type."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError

_PIECE = 1 << 24  # values looked at at once


def not_finite(tensor: Tensor) -> int:
    """How many values are NaN or infinite; none of integers."""
    if not tensor.is_floating_point():
        return 0
    return sum(_count(piece) for piece in tensor.reshape(-1).split(_PIECE))


def require_finite(where: Path, name: str, tensor: Tensor) -> None:
    """ModelLoadError, with their number, unless all values are finite."""
    if count := not_finite(tensor):
        raise ModelLoadError(
            f"{where}: tensor {name!r}: {count:,} of {tensor.numel():,} values are NaN or infinite: the file is corrupt"
        )


def _count(piece: Tensor) -> int:
    plain = piece.float() if piece.dtype.itemsize == 1 else piece  # torch has no such question for 8-bit types
    return piece.numel() - int(torch.isfinite(plain).sum())
