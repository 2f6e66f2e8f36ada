"""The tensors in the safetensors files of a folder: the file, type, shape and offset of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError, one_line

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_OTHERS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")  # weights that are not read
_MAX_SHOWN = 3
_PLAIN = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
_LENGTH_BYTES = 8  # length of the header, little-endian, before the header
_DTYPES = {  # by the format's names
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
    """A tensor in a file: `num_bytes` from byte `offset` on."""

    path: Path
    offset: int
    num_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def require_plain(self, name: str) -> None:
        """UnsupportedModelError for a type of quantized weights, naming the tensor."""
        if self.dtype not in _PLAIN:
            raise UnsupportedModelError(f"tensor {name!r} is {self.dtype}: quantized weights")

    def require_type(self, name: str, wanted: torch.dtype | None) -> None:
        """ModelLoadError unless the type is `wanted`, or any floating-point type if that is None."""
        if not (self.dtype.is_floating_point if wanted is None else self.dtype == wanted):
            form = "a floating-point type" if wanted is None else wanted
            raise ModelLoadError(f"tensor {name!r} is {self.dtype}, its format wants {form}")


def stored_by_name(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of the folder. Only headers are read.

    ModelLoadError if files are missing, truncated or mixed up: if a tensor is not in the file that the index names,
    or is in two files.
    """
    single, sharded = (folder / SINGLE).is_file(), (folder / INDEX).is_file()
    if sharded and not single:
        return _sharded(folder)
    if single:
        found = stored_tensors(folder / SINGLE)
        if sharded and found.keys() != _index(folder).keys():
            raise ModelLoadError(f"{folder}: {SINGLE} has other tensors than {INDEX} lists: remove one of them")
        return found
    there = sorted({path.name for pattern in _OTHERS for path in folder.glob(pattern)})
    instead = f"; there are {', '.join(there[:_MAX_SHOWN])}" if there else ""
    raise ModelLoadError(f"{folder}: no {SINGLE} and no {INDEX}{instead}")


def _index(folder: Path) -> dict[str, str]:
    """The file of each tensor according to the index."""
    try:
        weight_map = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"{folder / INDEX}: not an index of shards: {one_line(error)}") from error


def _sharded(folder: Path) -> dict[str, StoredTensor]:
    files = _index(folder)
    shards = sorted(set(files.values()))
    if elsewhere := [file for file in shards if not file or Path(file).name != file]:
        raise ModelLoadError(f"{folder / INDEX}: {elsewhere[0]!r} is not the name of a file in this folder")
    if missing := [file for file in shards if not (folder / file).is_file()]:
        raise ModelLoadError(f"{folder}: shards are missing: {', '.join(missing)}")
    found: dict[str, StoredTensor] = {}
    for file in shards:
        for name, tensor in stored_tensors(folder / file).items():
            if name in found:
                raise ModelLoadError(f"{folder}: tensor {name!r} is in two shards, {found[name].path.name} and {file}")
            found[name] = tensor
    for name in files | found:
        listed, there = files.get(name), found[name].path.name if name in found else None
        if there is None:
            raise ModelLoadError(f"{folder}: tensor {name!r} is missing from {listed}")
        if listed is None:
            raise ModelLoadError(f"{folder}: tensor {name!r} is in {there}, and the index does not list it")
        if there != listed:
            raise ModelLoadError(f"{folder}: tensor {name!r} is in {there}, the index says {listed}")
    return found


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
    tensors: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if (dtype := _DTYPES.get(entry["dtype"])) is None:
            raise UnsupportedModelError(
                f"{path}: tensor {name!r} is of type {entry['dtype']}, which is not implemented"
            )
        begin, end = entry["data_offsets"]
        tensors[name] = StoredTensor(path, data + begin, end - begin, dtype, tuple(entry["shape"]))
    return tensors
