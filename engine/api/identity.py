"""An engine's identity: its name, the machine, the devices it uses, and the name of its model."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from thothy_ai.engine.api.options import EngineOptions

_NULL = "null"
_UUID_PREFIX = "GPU-"
_UUID_CHARACTERS = 8  # how much of a GPU's UUID an engine's name contains


@dataclass(frozen=True, slots=True)
class Identity:
    """The fields of EngineInfo that are known before the model is loaded. `registered`: a registrar records the
    engine's sessions.
    """

    name: str
    machine: str
    model_name: str
    registered: bool


def identity_of(options: EngineOptions) -> Identity:
    """The identity by these options; defaults come from the machine and the model's path."""
    machine = printable(socket.gethostname())
    name = printable(options.name or f"{machine}-{gpu_label(options.device)}")
    model_name = options.model_name or _NULL
    if options.model is not None and not options.model_name:
        path = Path(os.path.normpath(options.model.absolute()))  # not resolved: a link may name the model
        model_name = path.stem if path.suffix == ".gguf" else path.name
    return Identity(name, machine, printable(model_name), options.session_id is not None)


def printable(text: str) -> str:
    """The text with bytes that are not UTF-8, as paths and variables can have them, escaped."""
    return text.encode(errors="backslashreplace").decode()


def gpu_label(device: str) -> str:
    """The GPU meant by "cuda", "cuda:1" or "auto": its index on the machine or its UUID's start; "0" on a CPU."""
    index = int(device.rpartition(":")[2]) if device.startswith("cuda:") and device[5:].isdigit() else 0
    visible = visible_devices()
    entry = visible[index] if visible and index < len(visible) else str(index)
    return entry.removeprefix(_UUID_PREFIX)[:_UUID_CHARACTERS] if entry.startswith(_UUID_PREFIX) else entry


def visible_devices() -> tuple[str, ...] | None:
    """The entries of CUDA_VISIBLE_DEVICES, indices or UUIDs; None if it is not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if value is None else tuple(entry.strip() for entry in value.split(",") if entry.strip())
