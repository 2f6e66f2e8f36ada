"""`Quantization`: which linear layers of a checkpoint are quantized, and how each of them stores its weight."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.models.tensors import TensorSource, Weight


class Layout(Protocol):
    """How one format stores the weight of a linear layer, beside `name`.weight or in its place."""

    def read(self, source: TensorSource, name: str, rows: int, inputs: int, /) -> Weight:
        """The weight [rows, inputs] of layer `name`.

        ModelLoadError if its tensors are not as the format says; ValueError if they contradict each other.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """Layers whose names `pattern` matches from the beginning; a layout of None leaves them plain."""

    pattern: str
    layout: Layout | None

    def applies(self, name: str) -> bool:
        """Whether the layer is one of these."""
        return re.match(self.pattern, name) is not None


@dataclass(frozen=True, slots=True)
class Quantization:
    """The first of the rules that applies to a layer decides; a layer without one is plain.

    `needs_fp8`: the device must multiply fp8. `needless` are endings of names of tensors that a folder may have and
    that are not read; those of `if_zero` are, to see that all their numbers are zero.
    """

    method: str
    rules: tuple[Rule, ...]
    needs_fp8: bool = False
    needless: tuple[str, ...] = ()
    if_zero: tuple[str, ...] = ()

    def layout(self, name: str) -> Layout | None:
        """How the layer of this name stores its weight; None: as a plain tensor."""
        return next((rule.layout for rule in self.rules if rule.applies(name)), None)

    def over(self, source: TensorSource) -> TensorSource:
        """The source with its packed weights read by these rules."""
        return _QuantizedSource(self, source)


@dataclass(frozen=True, slots=True)
class _QuantizedSource:
    quantization: Quantization
    source: TensorSource

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def folder(self) -> Path | None:
        return self.source.folder

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self.source.tensor(name, *shape)

    def weight(self, name: str, *shape: int) -> Weight:
        layer = name.removesuffix(".weight")
        layout = self.quantization.layout(layer)
        return self.source.weight(name, *shape) if layout is None else layout.read(self.source, layer, *shape)

    def stored(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.source.stored(name, *shape, dtype=dtype)

    def holds(self, name: str) -> bool:
        return self.source.holds(name)


def plain_layers(patterns: Collection[str]) -> list[Rule]:
    """Rules that leave these layers as they are."""
    return [Rule(pattern, None) for pattern in patterns]


def module_pattern(name: str) -> str:
    """Matches the module of this name, what is within it, and modules whose names end with it."""
    return rf"(?:{name})(?:\.|$)|(?:.*\.)?(?:{name})$"


def groups_of(inputs: int, size: int) -> int:
    """How many groups of `size` the inputs make; a size of -1 is one group of all."""
    return 1 if size == -1 else -(-inputs // size)


def strings(value: object) -> Sequence[str]:
    """A list of strings, or none for None; ValueError for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{value!r} is no list of names")
    return value
