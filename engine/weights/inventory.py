"""The tensors that a model is made of, and whether a folder or a file has exactly those."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.engine.errors import ModelLoadError, one_line
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.assemble import assemble

Shape = tuple[int, ...]

_RECOMPUTED = "rotary_emb.inv_freq"  # a buffer that early versions of transformers saved
_HEAD = "lm_head.weight"


class WithoutStorage:
    """A tensor source whose tensors have shapes only. `shapes` are those that were asked for, by name.

    `names` are those that a folder has; None: any.
    """

    device = torch.device("meta")
    folder = None

    def __init__(self, dtype: torch.dtype, names: Collection[str] | None = None) -> None:
        self.dtype, self._names = dtype, names
        self.shapes: dict[str, Shape] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape."""
        self.shapes[name] = shape
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return self._names is None or name in self._names

    def exact(self, name: str, *shape: int) -> Tensor:
        """As `tensor`, in float32."""
        return self.tensor(name, *shape).float()

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype) -> Tensor:
        """A tensor of this shape and type."""
        self.shapes[name] = shape
        return torch.empty(shape, dtype=dtype, device=self.device)

    def weight(self, name: str, *shape: int) -> Tensor:
        """As `tensor`."""
        return self.tensor(name, *shape)


def expected_tensors(where: Path, config: ModelConfig, names: Collection[str] | None = None) -> dict[str, Shape]:
    """Names and shapes of the tensors of a model of this configuration; ModelLoadError if it can't be built.

    Some tensors can be kept under one name or under several: as in `names`, those that there are.
    """
    source = WithoutStorage(torch.float32, names)
    try:
        assemble(config, source)
    except Exception as error:  # sizes that overflow, in more ways than one
        raise ModelLoadError(f"{where}: no model can be built by its configuration: {one_line(error)}") from error
    return source.shapes


def num_parameters(config: ModelConfig) -> int:
    """How many numbers a model of this configuration consists of, whatever their format; shared ones count once."""
    return sum(map(math.prod, expected_tensors(Path(), replace(config, quantization=None)).values()))


def require_tensors(where: Path, names: Collection[str], expected: Collection[str], *, tied: bool) -> None:
    """ModelLoadError if a tensor is missing, or if there is one that the configuration has no place for."""
    missing = [name for name in expected if name not in names]
    if missing:
        raise ModelLoadError(f"{where}: tensor {missing[0]!r} is missing{_others(missing)}")
    stray = [name for name in names if name not in expected and not _needless(name, tied=tied)]
    if stray:
        raise ModelLoadError(
            f"{where}: the configuration has no place for tensor {stray[0]!r}{_others(stray)}: it is of another model"
        )


def _needless(name: str, *, tied: bool) -> bool:
    return name.endswith(_RECOMPUTED) or (tied and name == _HEAD)


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} others" if len(names) > 1 else ""
