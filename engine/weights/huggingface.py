"""Tensors of a Hugging Face folder: `model.safetensors`, or shards behind `model.safetensors.index.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from thothy_ai.engine.errors import ModelLoadError, OutOfMemoryError, UnsupportedModelError
from thothy_ai.engine.models.tensors import Weight

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsFolder:
    """The folder's tensors by name, read one at a time straight to their device and type. Use it in a `with`.

    Raises ModelLoadError when a file is missing or truncated, or when a tensor is missing or has another shape.
    """

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        self._folder, self.device, self._dtype = folder, device, dtype
        self._files = _files_by_tensor(folder)
        self._open: dict[str, safe_open] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def dtype(self) -> torch.dtype:
        """The type that plain tensors get."""
        return self._dtype

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._files.keys()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._files

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A copy of tensor `name`, which must have `shape`."""
        return self._read(name, shape, self._dtype)

    def exact(self, name: str, *shape: int) -> Tensor:
        """As `tensor`, in float32."""
        return self._read(name, shape, torch.float32)

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype) -> Tensor:
        """A copy of tensor `name` in its own type."""
        copy = self._copy(name, shape)
        if copy.dtype != dtype:
            raise ModelLoadError(f"{self._folder}: tensor {name!r} is {copy.dtype}, its format wants {dtype}")
        return copy

    def weight(self, name: str, *shape: int) -> Weight:
        """As `tensor`: nothing packed is read from safetensors yet."""
        return self.tensor(name, *shape)

    def _read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        copy = self._copy(name, shape, dtype)
        if not copy.is_floating_point():
            raise UnsupportedModelError(f"{self._folder}: tensor {name!r} is {copy.dtype}: quantized weights")
        return copy

    def _copy(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """In `dtype` if it is of a floating-point type and that is given."""
        handle = self._handle(name)
        found = tuple(handle.get_slice(name).get_shape())
        if found != shape:
            raise ModelLoadError(f"{self._folder}: tensor {name!r} has shape {found}, the configuration wants {shape}")
        try:
            stored: Tensor = handle.get_tensor(name)
            wanted = dtype if stored.is_floating_point() and dtype else stored.dtype
            return stored.to(wanted, copy=True)  # the file's pages may not outlive the file
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(f"{self._folder}: the weights do not fit {self.device}") from error

    def _handle(self, name: str) -> safe_open:
        file = self._files.get(name)
        if file is None:
            raise ModelLoadError(f"{self._folder}: tensor {name!r} is missing")
        if file not in self._open:
            self._open[file] = self._stack.enter_context(_opened(self._folder / file, str(self.device)))
        if name not in self._open[file].keys():  # noqa: SIM118  the handle is no mapping
            raise ModelLoadError(f"{self._folder}: tensor {name!r} is missing from {file}")
        return self._open[file]


def read_ahead(folder: Path) -> None:
    """Have the kernel read the folder's weights into its page cache, as far as it has room, while others do without."""
    for path in sorted(folder.glob("*.safetensors")):
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _files_by_tensor(folder: Path) -> dict[str, str]:
    if (folder / SINGLE).is_file():
        with _opened(folder / SINGLE, "cpu") as handle:
            return dict.fromkeys(handle.keys(), SINGLE)
    if (folder / INDEX).is_file():
        return _read_index(folder)
    raise ModelLoadError(f"{folder}: no {SINGLE} and no {INDEX}")


def _read_index(folder: Path) -> dict[str, str]:
    try:
        weight_map = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{folder / INDEX}: not an index of shards: {error!r}") from error
    missing = sorted({file for file in files.values() if not (folder / file).is_file()})
    if missing:
        raise ModelLoadError(f"{folder}: shards are missing: {', '.join(missing)}")
    return files


def _opened(path: Path, device: str) -> safe_open:
    try:
        return safe_open(path, framework="pt", device=device)
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path}: truncated or not a safetensors file: {error}") from error
