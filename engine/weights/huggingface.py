"""Tensors of a Hugging Face folder: `model.safetensors`, or shards behind `model.safetensors.index.json`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from thothy_ai.engine.errors import ModelLoadError, OutOfMemoryError, UnsupportedModelError
from thothy_ai.engine.execution.host_memory import host_memory
from thothy_ai.engine.models.tensors import Weight
from thothy_ai.engine.weights.finite import require_finite
from thothy_ai.engine.weights.index import stored_by_name
from thothy_ai.engine.weights.reading import ParallelReader, Reading
from thothy_ai.engine.weights.shard import StoredTensor

_AHEAD_BYTES = {"cuda": 512 << 20, "cpu": 128 << 20}  # of tensors that are read before they are asked for

OnRead = Callable[[int, int], None]  # told the bytes that were taken so far, and those of all tensors


class SafetensorsFolder:
    """The folder's tensors by name, read straight to their device. Use it in a `with`.

    `renamed` gives the name of a tensor by the name that it is stored under, or None for one that is not wanted.
    `finite` refuses tensors with values that are not. Raises ModelLoadError when a file is missing or truncated, when
    files contradict each other, or when a tensor is missing or has another shape.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        dtype: torch.dtype,
        *,
        renamed: Callable[[str], str | None] = lambda name: name,
        finite: bool = False,
        on_read: OnRead = lambda _done, _of: None,
    ) -> None:
        self._folder, self.device, self._dtype = folder, device, dtype
        self._stored = _renamed(folder, stored_by_name(folder), renamed)
        self._finite, self._on_read = finite, on_read
        self._reader = ParallelReader(device)
        self._ahead: deque[str] = deque()  # names to read next
        self._readings: dict[str, Reading] = {}  # of tensors that nobody asked for yet
        self._asked: set[str] = set()
        self._taken = 0
        self._total = sum(stored.num_bytes for stored in self._stored.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._readings.clear()
        self._reader.close()

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._stored.keys()

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """Types, shapes and places of all tensors."""
        return self._stored

    def expect(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Tensors in the order in which they will be asked for: some are read ahead. ModelLoadError for another shape.

        Tensors that nobody expects are read when they are asked for.
        """
        for name, shape in shapes.items():
            if name in self._stored:
                self._require_shape(name, shape)
        self._ahead = deque(name for name in shapes if name in self._stored)
        self._total = sum(self._stored[name].num_bytes for name in self._ahead)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Tensor `name`, which must have `shape`, in the folder's type; it must be stored in a floating-point type."""
        stored = self.as_stored(name, *shape)
        if not stored.is_floating_point():
            raise UnsupportedModelError(f"{self._folder}: tensor {name!r} is {stored.dtype}: quantized weights")
        try:
            return stored.to(self._dtype)
        except torch.OutOfMemoryError as error:
            raise self._does_not_fit() from error

    def weight(self, name: str, *shape: int) -> Weight:
        """As `tensor`: nothing packed is read from safetensors yet."""
        return self.tensor(name, *shape)

    def as_stored(self, name: str, *shape: int) -> Tensor:
        """Tensor `name`, which must have `shape`, in the type that it is stored in."""
        stored = self._stored.get(name)
        if stored is None:
            raise ModelLoadError(f"{self._folder}: tensor {name!r} is missing")
        self._require_shape(name, shape)
        try:
            tensor = self._take(name)
        except torch.OutOfMemoryError as error:
            raise self._does_not_fit() from error
        self._taken += stored.num_bytes
        self._on_read(self._taken, self._total)
        if self._finite:
            require_finite(self._folder, name, tensor)
        return tensor

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        found = self._stored[name].shape
        if found != shape:
            raise ModelLoadError(f"{self._folder}: tensor {name!r} has shape {found}, the configuration wants {shape}")

    def _take(self, name: str) -> Tensor:
        self._asked.add(name)
        reading = self._readings.pop(name, None) or self._reader.start(self._stored[name])
        self._read_ahead()
        return reading.result()

    def _read_ahead(self) -> None:
        """Start as many of the expected tensors as may be in memory beside those that are in use."""
        held = sum(reading.tensor.nbytes for reading in self._readings.values())
        while self._ahead and held < _AHEAD_BYTES[self.device.type]:
            name = self._ahead.popleft()
            if name not in self._asked:
                self._readings[name] = self._reader.start(self._stored[name])
                held += self._stored[name].num_bytes

    def _does_not_fit(self) -> OutOfMemoryError:
        return OutOfMemoryError(f"{self._folder}: the weights do not fit {self.device}")


def read_ahead(folder: Path) -> None:
    """Have the kernel read the folder's weights into its page cache, if it has room, while others do without."""
    shards = sorted(folder.glob("*.safetensors"))
    with suppress(OSError):
        if sum(path.stat().st_size for path in shards) > host_memory().available:
            return
    for path in shards:
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _renamed(
    folder: Path, stored: Mapping[str, StoredTensor], renamed: Callable[[str], str | None]
) -> dict[str, StoredTensor]:
    names: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        new = renamed(name)
        if new in names:
            raise ModelLoadError(f"{folder}: tensor {new!r} is there under two names; one of them is {name!r}")
        if new is not None:
            names[new] = tensor
    return names
