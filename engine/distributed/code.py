"""The code and libraries of a process, in which the ranks of a group must not differ."""

from __future__ import annotations

import platform
from hashlib import sha256
from pathlib import Path

import torch

from thothy_ai import engine, kernels

_DIGITS = 16


def _digest() -> str:
    digest = sha256(f"{platform.python_version()} {torch.__version__}\n".encode())
    for package in (engine, kernels):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_DIGITS]


CODE = _digest()
"""16 hexadecimal digits of the engine's and the kernels' modules, and of the versions that they run on.

Of the files as they are when this process imports them: what changes on the disk later, it does not run.
"""


def device_kind(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
