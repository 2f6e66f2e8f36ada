"""Turns a GGUF file into a Hugging Face folder, once: the folder is kept in a cache and found again.

A folder's name holds a digest of the path, size and modification time of the file or its parts, the type of the
weights, whether quantized weights stay quantized, and the version of this conversion. Folders appear whole or not at
all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, one_line
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.gguf.configuration import configuration
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.split import model_name, parts_of
from thothy_ai.engine.weights.gguf.tensors import quantization, require_tensors, tensors, whole_stacks
from thothy_ai.engine.weights.gguf.tokenizer import build_tokenizer
from thothy_ai.engine.weights.inventory import expected_tensors
from thothy_ai.engine.weights.shards import INDEX, SINGLE

_VERSION = 3
_SHARD_BYTES = 2 << 30
_EXACT = (".e_score_correction_bias", ".A_log", ".dt_bias", ".D")  # float32 tensors of routers and recurrences


def converted_folder(path: Path, dtype: torch.dtype, cache_dir: Path, *, packed: bool = False) -> Path:
    """The folder for GGUF file `path` with weights in `dtype`, converted unless cached; ModelLoadError on failure.

    `packed`: quantized weights of linear layers stay in the file's blocks.
    """
    try:
        files = [(str(part.resolve()), part.stat().st_size, part.stat().st_mtime_ns) for part in parts_of(path)]
        identity = json.dumps((files, str(dtype), packed, _VERSION))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        folder = cache_dir / "gguf" / f"{model_name(path)}-{digest}"
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _convert_into(folder, path, dtype, packed=packed)
    except EngineError:
        raise
    except Exception as error:  # libraries can raise anything for a file's metadata
        raise ModelLoadError(f"{path}: can't be converted into {cache_dir}: {one_line(error)}") from error
    return folder


def _convert_into(folder: Path, path: Path, dtype: torch.dtype, *, packed: bool) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-", ignore_cleanup_errors=True) as partial:
        built = Path(partial) / folder.name
        built.mkdir()
        convert(path, built, dtype, packed=packed)
        try:
            os.replace(built, folder)  # noqa: PTH105  pathlib's replace is the same call; this names the intent
        except OSError:
            if not folder.is_dir():
                raise  # otherwise another process has converted the same file meanwhile


def convert(path: Path, folder: Path, dtype: torch.dtype, *, packed: bool = False) -> None:
    """Write the model of GGUF file `path` into the empty `folder`."""
    file = GGUFFile(path)
    _describe(file, path, folder, dtype, packed=packed)
    shards = _ShardWriter(folder)
    for name, tensor in tensors(file, packed=packed):
        # Blocks stay as they are, and some tensors are used in float32 whatever the model's type is.
        kept = not tensor.is_floating_point() or name.endswith(_EXACT)
        shards.add(name, tensor if kept else tensor.to(dtype))
    shards.close()


def described(path: Path, folder: Path, *, packed: bool = False) -> None:
    """Write configuration and tokenizer of GGUF file `path` into `folder`; ModelLoadError as for a conversion."""
    try:
        _describe(GGUFFile(path), path, folder, torch.float32, packed=packed)
    except EngineError:
        raise
    except Exception as error:  # as in `converted_folder`
        raise ModelLoadError(f"{path}: can't be converted: {one_line(error)}") from error


def _describe(file: GGUFFile, path: Path, folder: Path, dtype: torch.dtype, *, packed: bool) -> None:
    """Write configuration and tokenizer; ModelLoadError if the file's tensors do not fit the configuration."""
    config = configuration(file)
    config.dtype = dtype
    if (quantized := quantization(file, packed=packed)) is not None:
        config.quantization_config = quantized
    config.save_pretrained(folder)
    model = model_config(folder, named=path)
    require_tensors(file, expected_tensors(path, replace(model, quantization=None), whole_stacks(file)))
    tokenizer = build_tokenizer(file)
    model.ending_with(path, None if tokenizer is None else tokenizer.eos_token_id)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


class _ShardWriter:
    """Writes one safetensors file, or several behind an index; at most one of them is in memory at a time."""

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
