"""The two forms of a checkpoint, read for a check without loading and without a GPU."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import torch

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.finite import not_finite
from thothy_ai.engine.checkpoint.multimodal import renaming
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.huggingface import OnRead, SafetensorsFolder
from thothy_ai.engine.weights.loader import fitting
from thothy_ai.engine.weights.random import wants_random_weights


class Checkpoint(Protocol):
    """A model's folder or file. Methods raise ModelLoadError, or a subclass, if something is wrong with it."""

    @property
    def form(self) -> str:
        """A description of the kind of checkpoint."""
        ...

    @property
    def files(self) -> int:
        """The number of files with its weights, known after `stored` was called."""
        ...

    def folder(self) -> AbstractContextManager[Path]:
        """A folder with its config.json and its tokenizer."""
        ...

    def stored(self) -> dict[str, int]:
        """Bytes of its tensors by stored type."""
        ...

    def fitting(self, config: ModelConfig) -> ModelConfig:
        """The configuration, adapted to the tensors; ModelLoadError if they belong to another model."""
        ...

    def rope(self, folder: Path) -> str:
        """The variant of its rotary embedding."""
        ...

    def not_finite(self, on_read: OnRead) -> Iterator[str]:
        """A line for each tensor with NaN or infinite values; reads all of them."""
        ...


class FolderCheckpoint:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._renamed: Callable[[str], str | None] = renaming(None)
        self._random = wants_random_weights(path)
        self.form = "Hugging Face folder, random weights" if self._random else "Hugging Face folder, safetensors"
        self.files = 0

    def folder(self) -> AbstractContextManager[Path]:
        return nullcontext(self._path)

    def stored(self) -> dict[str, int]:
        if self._random:
            return {}
        tensors = self._source().places.values()
        self.files = len({tensor.path for tensor in tensors})
        return _by_type((str(tensor.dtype).removeprefix("torch."), tensor.num_bytes) for tensor in tensors)

    def fitting(self, config: ModelConfig) -> ModelConfig:
        """As the loader does, and compares shapes, which the loader does when it reads a tensor."""
        if self._random:
            return config
        self._renamed = renaming(config.container, config.family)
        with self._source() as source:
            return fitting(self._path, config, source)

    def rope(self, folder: Path) -> str:
        return rope_variant(folder)

    def not_finite(self, on_read: OnRead) -> Iterator[str]:
        if self._random:
            return
        with self._source(on_read) as source:
            source.expect({name: place.shape for name, place in source.places.items()})
            for name, place in source.places.items():
                tensor = source.stored(name, *place.shape, dtype=place.dtype)
                if count := not_finite(tensor):
                    yield _problem(self._path, name, count, tensor.numel())

    def _source(self, on_read: OnRead = lambda _done, _of: None) -> SafetensorsFolder:
        return SafetensorsFolder(self._path, torch.device("cpu"), torch.float32, renamed=self._renamed, on_read=on_read)


class GGUFCheckpoint:
    """A GGUF file, or any part of a split one. `packed`: quantized tensors stay quantized."""

    form = "GGUF file"

    def __init__(self, path: Path, *, packed: bool = False) -> None:
        if path.suffix.lower() != ".gguf":
            raise ModelLoadError(f"{path}: neither a Hugging Face folder nor a .gguf file")
        self._path, self._packed = path, packed
        self.files = 0

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A temporary folder with its configuration and tokenizer."""
        from thothy_ai.engine.weights.gguf.convert import described  # noqa: PLC0415  gguf is only needed for GGUF files

        with tempfile.TemporaryDirectory() as made:
            described(self._path, Path(made), packed=self._packed)
            yield Path(made)

    def stored(self) -> dict[str, int]:
        from thothy_ai.engine.weights.gguf.file import GGUFFile  # noqa: PLC0415  as above

        file = GGUFFile(self._path)
        self.files = file.parts
        return _by_type(file.stored)

    def fitting(self, config: ModelConfig) -> ModelConfig:
        return config  # `folder` has compared the tensors

    def rope(self, folder: Path) -> str:
        return rope_variant(folder)

    def not_finite(self, on_read: OnRead) -> Iterator[str]:
        from thothy_ai.engine.weights.gguf.file import GGUFFile  # noqa: PLC0415  as above

        file = GGUFFile(self._path)
        for done, name in enumerate(file.names, 1):
            tensor = file.tensor(name)
            if count := not_finite(tensor):
                yield _problem(self._path, name, count, tensor.numel())
            on_read(done, len(file.names))


def rope_variant(folder: Path) -> str:
    """The variant in config.json, such as "default", "llama3" or "yarn"; all of them if layers differ."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config") or config
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    tables = [each for each in given.values() if isinstance(each, dict)] or [given]
    kinds = dict.fromkeys(str(each.get("rope_type") or each.get("type") or "default") for each in tables)
    return ", ".join(kinds)


def _by_type(tensors: Iterator[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for kind, size in tensors:
        total[kind] += size
    return dict(total.most_common())


def _problem(where: Path, name: str, count: int, of: int) -> str:
    return f"{where}: tensor {name!r}: {count:,} of {of:,} values are NaN or infinite"
