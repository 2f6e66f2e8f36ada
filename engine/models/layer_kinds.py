"""Layers of one kind run the same kernels: they differ in their weights' values alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import fields, is_dataclass

from torch import Tensor

_ALIGNMENT = 16  # bytes: kernels are compiled for addresses that are multiples of it, and for others
_OURS = "thothy_ai."


def one_of_each_kind(layers: Iterable[object]) -> list[int]:
    """The index of the first layer of each kind."""
    first: dict[Hashable, int] = {}
    for index, layer in enumerate(layers):
        first.setdefault(kind_of(layer), index)
    return [*first.values()]


def kind_of(part: object) -> Hashable:
    """What decides how a layer, or a part of one, computes: types, settings, and what its tensors look like."""
    if isinstance(part, Tensor):
        return tuple(part.shape), part.stride(), part.dtype, part.data_ptr() % _ALIGNMENT
    if isinstance(part, tuple | list):
        return type(part), *map(kind_of, part)
    if type(part).__module__.startswith(_OURS):
        return type(part), *map(kind_of, _values(part))
    return part if isinstance(part, Hashable) else id(part)


def _values(part: object) -> Iterator[object]:
    if is_dataclass(part):
        return (getattr(part, field.name) for field in fields(part))
    return iter(vars(part).values())
