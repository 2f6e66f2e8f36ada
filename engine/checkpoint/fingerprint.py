"""The digest of a model's files, which distinguishes weights of the same name without reading all of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json"})
_SAMPLES, _SAMPLE_BYTES = 64, 4_096  # per file, evenly spaced: training changes a tensor everywhere
_DIGITS = 16


def fingerprint(model: Path) -> str:
    """A digest, 16 hexadecimal digits, of the names, sizes and samples of a model's files."""
    files = [model]
    if model.is_dir():  # with links that may be broken
        files = sorted(each for each in model.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    digest = sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name if model.is_dir() else ''}\n{size}\n".encode(errors="backslashreplace"))
        with path.open("rb") as file:
            for sample in range(_SAMPLES):
                file.seek(sample * max(0, size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:_DIGITS]
