"""Folders of safetensors shards, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def write_shards(folder: Path, tensors: Mapping[str, Tensor], shards: int) -> Path:
    """Deal the tensors out to so many shards, write these with their index, and return the folder."""
    names = list(tensors)
    where = {name: f"model-{at % shards + 1:05d}-of-{shards:05d}.safetensors" for at, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: tensors[name] for name in names if where[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder
