"""`Quantization`: which linear layers of a checkpoint are quantized, and how each of them stores its weight."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from torch import Tensor

from thothy_ai.engine.models.tensors import Dense, TensorSource, Weight
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.quantize import dequantize, dequantize_blocks

_compiled = cache(re.compile)  # a long list of exceptions would not fit re's own cache
_PACKED = ("qweight", "weight_packed", "weight_scale", "weight_scale_inv")  # beside or instead of a plain weight


class Layout(Protocol):
    """How a format stores the weight of a linear layer, beside `name`.weight or in its place."""

    def read(self, source: TensorSource, name: str, rows: int, inputs: int, /) -> Weight:
        """The weight [rows, inputs] of layer `name`.

        ModelLoadError if its tensors are not as the format says; ValueError if they contradict each other.
        """
        ...

    def dense(self, source: TensorSource, name: str, rows: int, inputs: int, /) -> Dense:
        """The same weight dequantized to the source's type, or in fp8; errors as `read`."""
        ...


@dataclass(frozen=True, slots=True)
class LayerRule:
    """`pattern` matches the beginning of layers' names; a layout of None leaves these layers plain."""

    pattern: str
    layout: Layout | None

    def applies(self, names: Collection[str]) -> bool:
        """Whether it applies to a layer, by any of its names."""
        matches = _compiled(self.pattern).match
        return any(matches(name) for name in names)


@dataclass(frozen=True, slots=True)
class Quantization:
    """The first of the rules that applies to a layer decides; a layer without one is plain.

    `needs_fp8`: the device must multiply fp8.
    `needless`: endings of names of tensors that a folder may have and that are not read.
    `if_zero`: endings of names of tensors that may be there if all their numbers are zero.
    `marks`: endings of names that only packed weights have, in formats where those have no `NAME.weight`. Where a
    folder's tensors are known they decide whether a layer is plain, since tools do not list all layers that they leave
    plain (routers).
    `dense_experts`: experts come in a format that is dequantized when they are loaded.
    `mxfp4_experts`: all experts are stacks in MXFP4.
    `prefixes`: of names in a multimodal checkpoint, each with the prefix in its text part. Rules may be written for
    either.
    """

    method: str
    rules: tuple[LayerRule, ...]
    needs_fp8: bool = False
    needless: tuple[str, ...] = ()
    if_zero: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    dense_experts: bool = False
    mxfp4_experts: bool = False
    prefixes: tuple[tuple[str, str], ...] = ()

    def layout(self, name: str) -> Layout | None:
        """How the layer of this name stores its weight; None: as a plain tensor."""
        return next((rule.layout for rule in self._applying(name)), None)

    def layout_in(self, source: TensorSource, name: str) -> Layout | None:
        """The same, unless the source's tensors show that the layer is plain, or that it is packed."""
        layout = self.layout(name)
        marked = any(source.holds(f"{name}.{mark}") for mark in self.marks)
        if layout is None:
            packed = (rule.layout for rule in self._applying(name) if rule.layout is not None)
            return next(packed, None) if marked else None
        return None if self.marks and not marked and source.holds(f"{name}.weight") else layout

    def _applying(self, name: str) -> Iterator[LayerRule]:
        module = f"{name}."
        others = [(old + module.removeprefix(new))[:-1] for old, new in self.prefixes if module.startswith(new)]
        return (rule for rule in self.rules if rule.applies((name, *others)))

    def over(self, source: TensorSource) -> TensorSource:
        return _QuantizedSource(self, source)


class _QuantizedSource:
    """The tensors of `source`, packed weights in the layouts of a quantization."""

    def __init__(self, quantization: Quantization, source: TensorSource) -> None:
        self._layout_in, self._source = quantization.layout_in, source
        self.device, self.dtype, self.folder = source.device, source.dtype, source.folder
        self.stored, self.holds = source.stored, source.holds

    def tensor(self, name: str, *shape: int) -> Tensor:
        layer = name.removesuffix(".weight")
        if layer == name or not any(self.holds(f"{layer}.{ending}") for ending in _PACKED):
            return self._source.tensor(name, *shape)
        found = self.dense(name, *shape)
        if isinstance(found, Tensor):
            return found
        return (dequantize(found) if isinstance(found, Quantized) else dequantize_blocks(found)).to(self.dtype)

    def weight(self, name: str, *shape: int) -> Weight:
        layer = name.removesuffix(".weight")
        layout = self._layout_in(self._source, layer)
        return self._source.weight(name, *shape) if layout is None else layout.read(self._source, layer, *shape)

    def dense(self, name: str, *shape: int) -> Dense:
        layer = name.removesuffix(".weight")
        layout = self._layout_in(self._source, layer)
        return self._source.dense(name, *shape) if layout is None else layout.dense(self._source, layer, *shape)


@contextmanager
def named(layer: str) -> Iterator[None]:
    """Prefix the message of a ValueError with the layer's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{layer}: {error}") from error


def plain_layers(patterns: Collection[str]) -> list[LayerRule]:
    return [LayerRule(pattern, None) for pattern in patterns]


def module_pattern(name: str) -> str:
    """Matches the module of this name, all that is in it, and modules with names that end in it."""
    return rf"(?:{name})(?:\.|$)|(?:.*\.)?(?:{name})$"


def groups_of(inputs: int, size: int) -> int:
    """How many groups of `size` the inputs make; a size of -1 is one group of all."""
    return 1 if size == -1 else -(-inputs // size)


def strings(value: object) -> Sequence[str]:
    """A list of strings, or none for None; ValueError for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"expected a list of names, got {value!r}")
    return value
