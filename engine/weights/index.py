"""Which file of a Hugging Face folder has which tensor; files and index must agree."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from thothy_ai.engine.api.errors import ModelLoadError, one_line
from thothy_ai.engine.weights.shard import StoredTensor, stored_tensors

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
