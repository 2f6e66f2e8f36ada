"""Kinds of layers. Layers of one kind run the same kernels, and differ only in the values of their weights.

Everything is compared that Triton specializes on and cuBLAS chooses by: types, settings, shapes, strides and alignment.
Parts that cannot be compared count as different.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields, is_dataclass

from torch import Tensor

from thothy_ai.engine.models.layers.adapted import AdaptedLinear, AdapterBank

_ALIGNMENT = 256  # bytes: the largest alignment that a GPU kernel uses
_OURS = "thothy_ai."


def one_of_each_kind(parts: Iterable[object]) -> list[int]:
    """The index of the first part of each kind."""
    first: dict[Hashable, int] = {}
    for index, part in enumerate(parts):
        first.setdefault(kind_of(part), index)
    return [*first.values()]


def kind_of(part: object) -> Hashable:
    """A key of everything that determines how a layer, or a part of one, computes."""
    if isinstance(part, Tensor):
        strides = None if part.is_mkldnn else part.stride()  # packed tensors have no strides
        return tuple(part.shape), part.dtype, strides, part.data_ptr() % _ALIGNMENT if part.is_cuda else None
    if isinstance(part, AdaptedLinear):
        return AdaptedLinear, kind_of(part.layer)
    if isinstance(part, AdapterBank):  # a model has one
        return AdapterBank
    if isinstance(part, tuple | list):
        return type(part), *map(kind_of, part)
    if type(part).__module__.startswith(_OURS):
        values: Iterable[object] = [id(part)]  # for parts that can't be compared
        if is_dataclass(part):
            values = [getattr(part, field.name) for field in fields(part)]
        elif hasattr(part, "__dict__"):
            values = vars(part).values()
        return type(part), *map(kind_of, values)
    return part if isinstance(part, Hashable) else id(part)
