"""Turns a GGUF file into a Hugging Face folder, once: the folder is kept in a cache and found again.

A folder's name holds a digest of path, size and modification time of the file or of its parts, of the type its weights
are kept in, of whether quantized ones stay so, and of the version of this conversion. Folders appear whole or not at
all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, one_line
from thothy_ai.engine.weights import gguf_config, gguf_tensors
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.gguf import GGUFFile
from thothy_ai.engine.weights.gguf_tokenizer import build_tokenizer
from thothy_ai.engine.weights.index import INDEX, SINGLE
from thothy_ai.engine.weights.inventory import expected_tensors
from thothy_ai.engine.weights.split import model_name, parts_of

_VERSION = 1
_SHARD_BYTES = 2 << 30
_CORRECTION = ".e_score_correction_bias"


def converted_folder(path: Path, dtype: torch.dtype, cache_dir: Path, *, packed: bool = False) -> Path:
    """The folder that GGUF file `path` was or is now converted to, its weights in `dtype`; ModelLoadError.

    `packed`: those of linear layers stay in the file's blocks, if they are quantized.
    """
    try:
        folder = cache_dir / "gguf" / f"{model_name(path)}-{_digest(path, dtype, packed=packed)}"
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _convert_into(folder, path, dtype, packed=packed)
    except EngineError:
        raise
    except Exception as error:  # a file's metadata goes through libraries that may raise anything
        raise ModelLoadError(f"{path}: can't be converted into {cache_dir}: {one_line(error)}") from error
    return folder


def _digest(path: Path, dtype: torch.dtype, *, packed: bool) -> str:
    files = [(str(part.resolve()), part.stat().st_size, part.stat().st_mtime_ns) for part in parts_of(path)]
    identity = (files, str(dtype), packed, _VERSION)
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _convert_into(folder: Path, path: Path, dtype: torch.dtype, *, packed: bool) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-", ignore_cleanup_errors=True) as partial:
        built = Path(partial) / folder.name
        built.mkdir()
        convert(path, built, dtype, packed=packed)
        try:
            os.replace(built, folder)  # noqa: PTH105  pathlib's replace is the same call; this names the intent
        except OSError:
            if not folder.is_dir():
                raise  # else another process converted the same file meanwhile


def convert(path: Path, folder: Path, dtype: torch.dtype, *, packed: bool = False) -> None:
    """Write the model of GGUF file `path` into the empty `folder`."""
    file = GGUFFile(path)
    _describe(file, path, folder, dtype, packed=packed)
    _save_weights(_typed(gguf_tensors.tensors(file, packed=packed), dtype), folder)


def _typed(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Those that are numbers in `dtype`; blocks, and what routers choose by in float32, as they are."""
    for name, tensor in tensors:
        kept = not tensor.is_floating_point() or name.endswith(_CORRECTION)
        yield name, tensor if kept else tensor.to(dtype)


def described(path: Path, folder: Path, *, packed: bool = False) -> None:
    """Write the configuration and the tokenizer of GGUF file `path` into `folder`; ModelLoadError as a conversion."""
    try:
        _describe(GGUFFile(path), path, folder, torch.float32, packed=packed)
    except EngineError:
        raise
    except Exception as error:  # as above
        raise ModelLoadError(f"{path}: can't be converted: {one_line(error)}") from error


def _describe(file: GGUFFile, path: Path, folder: Path, dtype: torch.dtype, *, packed: bool) -> None:
    """Write configuration and tokenizer; ModelLoadError if the file's tensors are not those of the configuration."""
    config = gguf_config.configuration(file)
    config.dtype = dtype
    if (quantization := gguf_tensors.quantization(file, packed=packed)) is not None:
        config.quantization_config = quantization
    config.save_pretrained(folder)
    model = model_config(folder, named=path)
    gguf_tensors.require_tensors(file, expected_tensors(path, replace(model, quantization=None)))
    tokenizer = build_tokenizer(file)
    model.ending_with(path, None if tokenizer is None else tokenizer.eos_token_id)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def _save_weights(tensors: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """One safetensors file, or shards behind an index; at most a shard is in memory at a time."""
    writer = _ShardWriter(folder)
    for name, tensor in tensors:
        writer.add(name, tensor)
    writer.close()


class _ShardWriter:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shard: dict[str, Tensor] = {}
        self._weight_map: dict[str, str] = {}
        self._bytes = self._total = self._shards = 0

    def add(self, name: str, tensor: Tensor) -> None:
        if self._shard and self._bytes + tensor.nbytes > _SHARD_BYTES:
            self._flush()
        self._shard[name] = tensor.contiguous()
        self._bytes += tensor.nbytes

    def close(self) -> None:
        self._flush()
        if self._shards == 1:
            shutil.move(self._folder / self._name(1), self._folder / SINGLE)
            return
        index = {"metadata": {"total_size": self._total}, "weight_map": self._weight_map}
        (self._folder / INDEX).write_text(json.dumps(index), encoding="utf-8")

    def _flush(self) -> None:
        self._shards += 1
        name = self._name(self._shards)
        save_file(self._shard, self._folder / name, metadata={"format": "pt"})
        self._weight_map |= dict.fromkeys(self._shard, name)
        self._total += self._bytes
        self._shard, self._bytes = {}, 0

    @staticmethod
    def _name(number: int) -> str:
        return f"model-{number:05d}.safetensors"
