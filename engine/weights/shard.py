"""One safetensors file: which tensors it has, of which type and shape, and where in the file their bytes are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError, one_line

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
