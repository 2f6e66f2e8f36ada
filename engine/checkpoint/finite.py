"""Values that are NaN or infinite, in tensors of any floating-point type."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError

_PIECE = 1 << 24  # values checked at once


def not_finite(tensor: Tensor) -> int:
    """How many values are NaN or infinite; 0 for integers."""
    if not tensor.is_floating_point():
        return 0
    count = 0
    for piece in tensor.reshape(-1).split(_PIECE):
        plain = piece.float() if piece.dtype.itemsize == 1 else piece  # the operations take no 8-bit types
        # The extremes are NaN if any value is, and finding them takes a fraction of isfinite's time.
        if not (piece.numel() and torch.isfinite(torch.stack(plain.aminmax())).all()):
            count += piece.numel() - int(torch.isfinite(plain).sum())
    return count


def require_finite(where: Path, name: str, tensor: Tensor) -> None:
    """ModelLoadError, with the number of other values, unless all are finite."""
    if count := not_finite(tensor):
        raise ModelLoadError(
            f"{where}: tensor {name!r}: {count:,} of {tensor.numel():,} values are NaN or infinite: the file is corrupt"
        )
