"""The digest of a model's files: tells its weights from others under the same name, without reading all of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json"})
_SAMPLES, _SAMPLE_BYTES = 64, 4_096  # of each file, evenly apart: training changes all of a tensor
_DIGITS = 16


def fingerprint(model: Path) -> str:
    """16 hexadecimal digits of a model's folder or file: of the names, sizes and samples of what it is made of."""
    files = [model]
    if model.is_dir():  # where links may lead nowhere
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
