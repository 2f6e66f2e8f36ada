"""GGUF files that are split into parts: NAME-00001-of-00003.gguf and so on (llama.cpp's `llama_split_path`)."""

from __future__ import annotations

import re
from pathlib import Path

from thothy_ai.engine.api.errors import ModelLoadError

_PART = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})", re.DOTALL)


def parts_of(path: Path) -> tuple[Path, ...]:
    """All parts of the model, in order, given the path of any; only the file if its name is not a part's name.

    ModelLoadError if parts are missing.
    """
    if (found := _PART.fullmatch(path.stem)) is None:
        return (path,)
    count = int(found["count"])
    if not 1 <= int(found["number"]) <= count:
        raise ModelLoadError(f"{path}: there is no part {int(found['number'])} of {count}")
    names = (f"{found['name']}-{number:05d}-of-{found['count']}{path.suffix}" for number in range(1, count + 1))
    parts = tuple(path.with_name(name) for name in names)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ModelLoadError(f"{path}: part {missing[0]} is missing{others}")
    return parts


def model_name(path: Path) -> str:
    """The file's name without its extension and the number of its part."""
    found = _PART.fullmatch(path.stem)
    return path.stem if found is None else found["name"]
