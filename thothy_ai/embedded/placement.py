"""Where the engines of a stack run: on which GPUs, or as how many processes on the CPU."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from thothy_ai.embedded.endpoint import engine_endpoint
from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_NAME = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]{1,90}")  # an index, or a UUID
NO_GPU = (
    "no NVIDIA GPU found on this machine (the driver lists none): `--gpus none` runs the engine on the CPU,"
    " `--engines 2` runs two of them there"
)


class Gpu(Protocol):
    """A GPU of this machine (`engine/process/gpus.py`)."""

    @property
    def index(self) -> int:
        """Its number, as `nvidia-smi` has it."""

    @property
    def uuid(self) -> str:
        """Its UUID, or nothing."""

    @property
    def name(self) -> str:
        """Its product's name."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What one engine runs on: arguments and environment of its process; the label tells it from the others."""

    label: str = ""  # empty: the only engine, on what suits it
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class Pair:
    """An engine and the worker beside it: names of the processes, and settings of both."""

    engine: str
    worker: str
    settings: Settings
    placement: Placement
    number: int


def placements(gpus: str | None, engines: int | None, there: Sequence[Gpu]) -> tuple[Placement, ...]:
    """What `--gpus` and `--engines` ask for, on a machine with these GPUs. Raises `ConfigError`."""
    if engines is not None:
        if gpus not in {None, "none"}:
            raise ConfigError("--engines is for engines on the CPU; with --gpus there is one engine per GPU")
        return tuple(_on_cpu(number, engines) for number in range(engines))
    if gpus is None:
        return (ANYWHERE,)
    if gpus == "none":
        return (_on_cpu(0, 1),)
    if gpus != "all":
        _check_syntax(gpus)
    if not there:
        raise ConfigError(NO_GPU)
    return tuple(map(_on_gpu, there if gpus == "all" else _chosen(gpus, there)))


def pairs(settings: Settings, home: Path, where: Sequence[Placement]) -> tuple[Pair, ...]:
    """One engine and one worker for each placement, with sockets in `home` and names of their own."""
    return tuple(_pair(settings, home, placement, number, len(where)) for number, placement in enumerate(where))


def _pair(settings: Settings, home: Path, placement: Placement, number: int, count: int) -> Pair:
    suffix = f"-{placement.label}" if count > 1 else ""
    endpoint = engine_endpoint(home, f"-{number}" if number else "")
    own = {"engine_url": endpoint.url, "engine_token": endpoint.secret}
    if placement.label:
        own["engine_name"] = f"{settings.engine_name or socket.gethostname()}-{placement.label}"
    settings = settings.model_copy(update=own)
    return Pair(f"engine{suffix}", f"worker{suffix}", settings, placement, number)


def _check_syntax(names: str) -> None:
    wrong = next((name for name in map(str.strip, names.split(",")) if not GPU_NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ConfigError(f"--gpus: {wrong!r} is no GPU; say all, none, or indices as nvidia-smi has them, such as 0,1")


def _chosen(names: str, there: Sequence[Gpu]) -> list[Gpu]:
    chosen = [_named(name.strip(), there) for name in names.split(",")]
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"--gpus {names} names a GPU twice: there is one engine per GPU")
    return chosen


def _named(name: str, there: Sequence[Gpu]) -> Gpu:
    found = next((gpu for gpu in there if name in {str(gpu.index), gpu.uuid}), None)
    if found is None:
        known = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in there)
        raise ConfigError(f"--gpus: there is no GPU {name!r}; available: {known}, or all, or none")
    return found


def _on_gpu(gpu: Gpu) -> Placement:
    """By UUID: CUDA may count in another order than the driver."""
    return Placement(str(gpu.index), ("--device", "cuda"), {VISIBLE: gpu.uuid or str(gpu.index)})


def _on_cpu(number: int, count: int) -> Placement:
    threads = max(1, (os.cpu_count() or 1) // count)
    return Placement(str(number), ("--device", "cpu", "--threads", str(threads)))
