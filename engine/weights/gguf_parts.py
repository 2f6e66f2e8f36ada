"""Opens the parts of a GGUF file with the `gguf` package, and makes sure that they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import DTypeLike, NDArray

from thothy_ai.engine.api.errors import ModelLoadError, one_line
from thothy_ai.engine.weights.split import parts_of

_MAX_ITEMS = 1 << 21  # of a metadata array: no vocabulary has as many
_LEAST_BYTES: dict[int, int] = {gguf.GGUFValueType.STRING: 8, gguf.GGUFValueType.ARRAY: 12}  # of an item; 1 of others
_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


class Reader(gguf.GGUFReader):
    """Refuses lengths that the file is too short for, which its base takes at their word, without end."""

    def _get(
        self, offset: int, dtype: DTypeLike, count: int = 1, override_order: Literal["I", "S", "<"] | None = None
    ) -> NDArray[Any]:
        if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
            raise ValueError("a length lies beyond its end")
        return super()._get(offset, dtype, count, override_order)

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[NDArray[Any]], list[int], list[gguf.GGUFValueType]]:
        if raw_type == gguf.GGUFValueType.ARRAY:
            kind, length = int(self._get(orig_offs, np.uint32)[0]), int(self._get(orig_offs + 4, np.uint64)[0])
            if length > _MAX_ITEMS or length * _LEAST_BYTES.get(kind, 1) > len(self.data) - orig_offs:
                raise ValueError(f"an array of {length} items")
        return super()._get_field_parts(orig_offs, raw_type)


def open_parts(path: Path) -> list[Reader]:
    """Readers of all parts, the first of which has the metadata, by the path of any.

    ModelLoadError for a part that is missing, truncated, or not of this model.
    """
    paths = parts_of(path)
    readers = [_opened(part) for part in paths]
    for number, (part, reader) in enumerate(zip(paths, readers, strict=True)):
        _require_place(part, reader, number, len(paths))
    _require_tensors(path, paths, readers)
    return readers


def _opened(path: Path) -> Reader:
    try:
        return Reader(path)
    except Exception as error:  # it computes with whatever numbers the file has
        raise ModelLoadError(f"{path}: truncated or not a GGUF file: {one_line(error)}") from error


def _require_place(path: Path, reader: Reader, number: int, count: int) -> None:
    """The metadata must say what the name does."""
    said_count = _number(path, reader, _COUNT, 1)
    if said_count > 1 and count == 1:
        raise ModelLoadError(
            f"{path}: one of {said_count} parts, whose name does not end in -00001-of-{said_count:05d}"
        )
    said = (_number(path, reader, _NUMBER, 0), said_count)
    if said != (number, count):
        raise ModelLoadError(f"{path}: the metadata says part {said[0] + 1} of {said[1]}")


def _require_tensors(path: Path, paths: Sequence[Path], readers: Sequence[Reader]) -> None:
    places: dict[str, Path] = {}
    for part, reader in zip(paths, readers, strict=True):
        for tensor in reader.tensors:
            if tensor.name in places:
                raise ModelLoadError(
                    f"{path}: tensor {tensor.name!r} is in two parts, {places[tensor.name].name} and {part.name}"
                )
            places[tensor.name] = part
    said = _number(paths[0], readers[0], _TENSORS, len(places))
    if said != len(places):
        raise ModelLoadError(f"{path}: the parts have {len(places)} tensors, the metadata of the first says {said}")


def _number(path: Path, reader: Reader, key: str, default: int) -> int:
    field = reader.fields.get(key)
    value = default if field is None else field.contents()
    if not isinstance(value, int) or value < 0:
        raise ModelLoadError(f"{path}: metadata {key!r} is {value!r}")
    return value
