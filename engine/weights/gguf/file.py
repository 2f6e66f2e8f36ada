"""A GGUF file, or all its parts, as metadata and tensors. The `gguf` package reads the container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import gguf
import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError, one_line
from thothy_ai.engine.weights.gguf.split import parts_of

T = TypeVar("T")

QUANTIZATIONS = frozenset(
    gguf.GGMLQuantizationType[name]
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
)


class GGUFFile:
    """An open file, or all parts of a split file, given the path of any part.

    A metadata key that starts with a dot is one of its architecture: ".block_count". ModelLoadError when a part is
    missing, truncated, of another model or no GGUF file, or when metadata is missing or of another type;
    UnsupportedModelError for a tensor type not in QUANTIZATIONS.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        readers = open_parts(path)
        self.parts = len(readers)
        self._fields = readers[0].fields
        self._read: set[str] = set()  # the keys read so far
        self._tensors = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self.architecture = self.required("general.architecture", str)
        for name, tensor in self._tensors.items():
            if tensor.tensor_type not in QUANTIZATIONS:
                kinds = ", ".join(sorted(kind.name for kind in QUANTIZATIONS))
                raise UnsupportedModelError(
                    f"{path}: tensor {name!r} is {tensor.tensor_type.name}, which is not implemented "
                    f"(implemented: {kinds})"
                )

    @overload
    def get(self, key: str, kind: type[T]) -> T | None: ...
    @overload
    def get(self, key: str, kind: type[T], default: T) -> T: ...
    def get(self, key: str, kind: type[T], default: T | None = None) -> T | None:
        """A metadata value, or `default`."""
        self._read.add(self._full(key))
        field = self._fields.get(self._full(key))
        try:
            value = None if field is None else field.contents()
        except ValueError as error:
            raise ModelLoadError(
                f"{self.path}: metadata {self._full(key)!r} is not UTF-8: {one_line(error)}"
            ) from error
        return default if value is None else self._checked(key, kind, value)

    @property
    def unread(self) -> Iterator[str]:
        """The keys of the architecture that were never read."""
        length = len(self.architecture)
        keys = [key for key in self._fields if key.startswith(f"{self.architecture}.") and key not in self._read]
        return (key[length:] for key in keys)

    def holds(self, key: str) -> bool:
        return self._full(key) in self._fields

    def positive(self, key: str) -> int:
        """A required number that is at least 1."""
        value = self.required(key, int)
        if value < 1:
            raise ModelLoadError(f"{self.path}: metadata {self._full(key)!r} is {value}")
        return value

    def required(self, key: str, kind: type[T]) -> T:
        """A metadata value that the file must have."""
        value = self.get(key, kind)
        if value is None:
            raise ModelLoadError(f"{self.path}: metadata {self._full(key)!r} is missing")
        return value

    def items(self, key: str, kind: type[T]) -> list[T]:
        """A metadata array; empty when it is missing."""
        return [self._checked(key, kind, item) for item in self.get(key, list, [])]

    def _full(self, key: str) -> str:
        return self.architecture + key if key.startswith(".") else key

    def _checked(self, key: str, kind: type[T], value: object) -> T:
        if not isinstance(value, kind):
            raise ModelLoadError(
                f"{self.path}: metadata {self._full(key)!r} is a {type(value).__name__}, not a {kind.__name__}"
            )
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, in file order."""
        return tuple(self._tensors)

    @property
    def stored(self) -> Iterator[tuple[str, int]]:
        """The type and size in bytes of each tensor."""
        return ((tensor.tensor_type.name, int(tensor.n_bytes)) for tensor in self._tensors.values())

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, outermost axis first; ModelLoadError when the tensor is missing."""
        if name not in self._tensors:
            raise ModelLoadError(f"{self.path}: tensor {name!r} is missing")
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def tensor(self, name: str) -> Tensor:
        """A tensor, dequantized to float32."""
        shape, stored = self.shape(name), self._tensors[name]
        values = gguf.quants.dequantize(stored.data, stored.tensor_type)
        return torch.from_numpy(np.array(values, dtype=np.float32)).view(shape)

    def kind(self, name: str) -> str:
        """The stored type of a tensor."""
        return self._tensors[name].tensor_type.name

    def blocks(self, name: str) -> Tensor:
        """A quantized tensor as it is stored: [..., bytes of a row] uint8."""
        return torch.from_numpy(np.array(self._tensors[name].data)).view(*self.shape(name)[:-1], -1)


_MAX_ITEMS = 1 << 21  # per metadata array; more than any vocabulary has
_MIN_BYTES: dict[int, int] = {gguf.GGUFValueType.STRING: 8, gguf.GGUFValueType.ARRAY: 12}  # per item; 1 for other types
_COUNT, _NUMBER, _TENSORS = "split.count", "split.no", "split.tensors.count"


class BoundedReader(gguf.GGUFReader):
    """Refuses lengths beyond the end of the file, for which the base class would go on reading or looping."""

    def _get(
        self, offset: int, dtype: DTypeLike, count: int = 1, override_order: Literal["I", "S", "<"] | None = None
    ) -> NDArray[Any]:
        kind, begin, length = np.dtype(dtype), int(offset), int(count)
        if begin + length * kind.itemsize > len(self.data):
            raise ValueError("a length lies beyond its end")
        # Not slices of `data` as in the base class: to make a memmap takes ten times longer, and a vocabulary needs
        # hundreds of thousands of parts.
        return np.frombuffer(self.data, kind.newbyteorder(override_order or self.byte_order), length, begin)

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[NDArray[Any]], list[int], list[gguf.GGUFValueType]]:
        if raw_type == gguf.GGUFValueType.ARRAY:
            kind, length = int(self._get(orig_offs, np.uint32)[0]), int(self._get(orig_offs + 4, np.uint64)[0])
            if length > _MAX_ITEMS or length * _MIN_BYTES.get(kind, 1) > len(self.data) - orig_offs:
                raise ValueError(f"an array of {length} items")
        return super()._get_field_parts(orig_offs, raw_type)


def open_parts(path: Path) -> list[BoundedReader]:
    """Readers of all parts, given the path of any; the first part has the metadata.

    ModelLoadError for a part that is missing, truncated, or not of this model.
    """
    paths = parts_of(path)
    readers = []
    for number, part in enumerate(paths):
        try:
            reader = BoundedReader(part)
        except Exception as error:  # the reader computes with unchecked numbers of the file
            raise ModelLoadError(f"{part}: truncated or not a GGUF file: {one_line(error)}") from error
        if reader.endianess is not gguf.GGUFEndian.LITTLE:  # blocks would be read byte by byte
            raise UnsupportedModelError(
                f"{part}: big-endian, which is not implemented: gguf's gguf_convert_endian swaps it"
            )
        count = _number(part, reader, _COUNT, 1)
        if count > 1 and len(paths) == 1:
            raise ModelLoadError(f"{part}: one of {count} parts, whose name does not end in -00001-of-{count:05d}")
        if (found := _number(part, reader, _NUMBER, 0), count) != (number, len(paths)):
            raise ModelLoadError(f"{part}: the metadata says part {found + 1} of {count}")
        readers.append(reader)
    _require_tensors(path, paths, readers)
    return readers


def _require_tensors(path: Path, paths: Sequence[Path], readers: Sequence[BoundedReader]) -> None:
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


def _number(path: Path, reader: BoundedReader, key: str, default: int) -> int:
    field = reader.fields.get(key)
    value = default if field is None else field.contents()
    if not isinstance(value, int) or value < 0:
        raise ModelLoadError(f"{path}: metadata {key!r} is {value!r}")
    return value
