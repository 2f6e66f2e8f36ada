"""The safetensors files of a folder: which of them has which tensor, of which type and shape, and where in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError, one_line

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_OTHERS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")  # weights that this engine can't find or read there
_MOST_SHOWN = 3


def stored_by_name(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of the folder. Only headers are read.

    ModelLoadError if files are missing, truncated or mixed up: a tensor that the index finds in another file than in
    the one that has it, or one that two files have.
    """
    if (folder / SINGLE).is_file():
        return stored_tensors(folder / SINGLE)
    if (folder / INDEX).is_file():
        return _sharded(folder, _read_index(folder))
    there = sorted({path.name for pattern in _OTHERS for path in folder.glob(pattern)})
    instead = f"; there are {', '.join(there[:_MOST_SHOWN])}" if there else ""
    raise ModelLoadError(f"{folder}: no {SINGLE} and no {INDEX}{instead}")


def _sharded(folder: Path, files: dict[str, str]) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(files.values())):
        for name, tensor in stored_tensors(folder / file).items():
            if name in found:
                raise ModelLoadError(f"{folder}: tensor {name!r} is in two shards, {found[name].path.name} and {file}")
            found[name] = tensor
    for name, file in files.items():
        _require_in(folder, name, file, found.get(name))
    return found


def _require_in(folder: Path, name: str, file: str, found: StoredTensor | None) -> None:
    if found is None:
        raise ModelLoadError(f"{folder}: tensor {name!r} is missing from {file}")
    if found.path.name != file:
        raise ModelLoadError(f"{folder}: tensor {name!r} is in {found.path.name}, the index says {file}")


def _read_index(folder: Path) -> dict[str, str]:
    """The file of each tensor."""
    try:
        weight_map = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"{folder / INDEX}: not an index of shards: {one_line(error)}") from error
    _require_files(folder, set(files.values()))
    return files


def _require_files(folder: Path, files: Iterable[str]) -> None:
    elsewhere = sorted(file for file in files if not file or Path(file).name != file)
    if elsewhere:
        raise ModelLoadError(f"{folder / INDEX}: {elsewhere[0]!r} is not the name of a file in this folder")
    missing = sorted(file for file in files if not (folder / file).is_file())
    if missing:
        raise ModelLoadError(f"{folder}: shards are missing: {', '.join(missing)}")


_LENGTH_BYTES = 8  # of the header, little-endian, before it
_DTYPES = {  # the format's names
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file, whose `num_bytes` begin at `offset`."""

    path: Path
    offset: int
    num_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name; only its header is read.

    ModelLoadError for a file that is truncated or of another kind: the library compares sizes, offsets and the file's
    length. UnsupportedModelError for a type of numbers that torch does not have.
    """
    try:
        with safe_open(path, framework="pt"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: truncated or not a safetensors file: {one_line(error)}") from error
    data = _LENGTH_BYTES + length
    return {name: _stored(path, name, entry, data) for name, entry in header.items() if name != "__metadata__"}


def _stored(path: Path, name: str, entry: dict[str, Any], data: int) -> StoredTensor:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise UnsupportedModelError(f"{path}: tensor {name!r} is of type {entry['dtype']}, which is not implemented")
    begin, end = entry["data_offsets"]
    return StoredTensor(path, data + begin, end - begin, dtype, tuple(entry["shape"]))
