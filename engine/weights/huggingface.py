"""Tensors of a Hugging Face folder: `model.safetensors`, or shards behind `model.safetensors.index.json`."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, OutOfMemoryError
from thothy_ai.engine.checkpoint.finite import require_finite
from thothy_ai.engine.execution.host_memory import host_memory
from thothy_ai.engine.weights.reader import ParallelReader, PendingTensor
from thothy_ai.engine.weights.shards import StoredTensor, stored_by_name

_AHEAD_BYTES = {"cuda": 512 << 20, "cpu": 128 << 20}  # of tensors read ahead

OnRead = Callable[[int, int], None]  # (bytes that were read so far, bytes of all tensors)


class SafetensorsFolder:
    """The folder's tensors by name, read straight to their device. Use it in a `with`.

    `dtype` is the type that plain tensors get; `places` has the types, shapes and places of all tensors as stored.
    `renamed` maps a stored name to the tensor's name, or to None if the tensor is not wanted.
    With `finite`, tensors with NaN or infinite values are refused. ModelLoadError if a file is missing or truncated, if
    files contradict each other, or if a tensor is missing or has another shape.
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
        self.folder, self.device, self.dtype = folder, device, dtype
        self.places: dict[str, StoredTensor] = {}
        for name, place in stored_by_name(folder).items():
            new = renamed(name)
            if new in self.places:
                raise ModelLoadError(f"{folder}: tensor {new!r} exists under two names; one of them is {name!r}")
            if new is not None:
                self.places[new] = place
        self._finite, self._on_read = finite, on_read
        self._reader = ParallelReader(device)
        self._ahead: deque[str] = deque()  # names to read next
        self._pending: dict[str, PendingTensor] = {}  # tensors that no one has asked for yet
        self._asked: set[str] = set()
        self._taken = 0
        self._total = sum(place.num_bytes for place in self.places.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pending.clear()
        self._reader.close()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors by name."""
        return {name: place.shape for name, place in self.places.items()}

    def check_values(self) -> None:
        """Read all tensors to verify that their values are finite, if required. transformers will read them again."""
        if self._finite:
            for name, place in self.places.items():
                self._read(name, place.shape)

    def expect(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Name the tensors in the order in which they will be asked for, so that some are read ahead.

        Other tensors are read when they are asked for. ModelLoadError for a tensor of another shape.
        """
        for name, shape in shapes.items():
            if name in self.places:
                self._require_shape(name, shape)
        self._ahead = deque(name for name in shapes if name in self.places)
        self._total = sum(self.places[name].num_bytes for name in self._ahead)
        self._on_read(0, self._total)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Tensor `name`, which must have `shape`, in the folder's type; it must be stored in 16 bits or more."""
        found = self._read(name, shape)
        with self._naming():
            self.places[name].require_plain(name)
        with self._fitting():
            return found.to(self.dtype)

    weight = dense = tensor  # the configuration knows which weights are packed

    def stored(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Tensor `name` in its stored type; a single number may have any number of axes.

        ModelLoadError unless that type is `dtype`, or any floating-point type if it is None.
        """
        found = self._read(name, shape)
        with self._naming():
            self.places[name].require_type(name, dtype)
        return found

    def holds(self, name: str, *shape: int) -> bool:
        """Whether there is such a tensor."""
        return name in self.places and shape in {(), self.places[name].shape}

    def is_zero(self, name: str) -> bool:
        """Whether all numbers of tensor `name` are zero."""
        return not self._reader.start(self.places[name]).result().any()

    def same(self, name: str, other: str) -> bool:
        """Whether two tensors are stored with the same type, shape and content."""
        return self._reader.same(self.places[name], self.places[other])

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self.places:
            raise ModelLoadError(f"{self.folder}: tensor {name!r} is missing")
        self._require_shape(name, shape)
        with self._fitting():
            self._asked.add(name)
            pending = self._pending.pop(name, None) or self._reader.start(self.places[name])
            # Before waiting for this tensor, begin to read the next expected ones, within the memory for reading ahead.
            held = sum(each.tensor.nbytes for each in self._pending.values())
            while self._ahead and held < _AHEAD_BYTES[self.device.type]:
                following = self._ahead.popleft()
                if following not in self._asked:
                    self._pending[following] = self._reader.start(self.places[following])
                    held += self.places[following].num_bytes
            tensor = pending.result()
            self._taken += tensor.nbytes
            self._on_read(self._taken, self._total)
            if self._finite:
                require_finite(self.folder, name, tensor)
        return tensor.view(shape)

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        found = self.places[name].shape
        if found != shape and not math.prod(found) == math.prod(shape) == 1:
            raise ModelLoadError(f"{self.folder}: tensor {name!r} has shape {found}, the configuration wants {shape}")

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except ModelLoadError as error:
            raise type(error)(f"{self.folder}: {error}") from error

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(f"{self.folder}: the weights do not fit {self.device}") from error


def read_ahead(folder: Path) -> None:
    """Have the kernel read the folder's weights into its page cache, if these fit the available memory."""
    shards = sorted(folder.glob("*.safetensors"))
    with suppress(OSError):
        if sum(path.stat().st_size for path in shards) > host_memory().available:
            return
    for path in shards:
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
