"""Decides where the engines of a stack run: on which GPUs, or in how many processes on the CPU."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from thothy_ai.embedded.endpoint import Endpoint, engine_endpoint
from thothy_ai.errors import ConfigError
from thothy_ai.plans.judges import default_processes
from thothy_ai.settings import Settings

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_NAME = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]{1,90}")  # an index, or a UUID
NO_GPU = (
    "no NVIDIA GPU found on this machine (the driver lists none): `--gpus none` runs the engine on the CPU,"
    " `--engines 2` runs two of them there"
)


class GpuLike(Protocol):
    """A GPU of this machine, as described by `engine/process/gpus.py`."""

    @property
    def index(self) -> int:
        """Its number, as printed by `nvidia-smi`."""

    @property
    def uuid(self) -> str:
        """Its UUID, or an empty string."""

    @property
    def name(self) -> str:
        """The product's name, such as NVIDIA H100 80GB HBM3."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The arguments and environment that place one engine's process on a device, and its label among several. For an
    engine that already runs, ours or a server over HTTP, its `endpoint`.
    """

    label: str = ""  # empty for the only engine, which chooses its device itself
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    endpoint: Endpoint | None = None


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class Pair:
    """An engine and its worker: the names of both processes, and their settings."""

    engine: str
    worker: str
    settings: Settings
    placement: Placement
    number: int


def placements(
    gpus: str | None, engines: int | None, available: Sequence[GpuLike], each: int = 1
) -> tuple[Placement, ...]:
    """The engines that `--gpus` and `--engines` ask for, on a machine with the `available` GPUs. `each` is the number
    of GPUs that share one engine's model. Raises `ConfigError`.
    """
    shared = ("--tensor-parallel", str(each)) if each > 1 else ()
    if shared and (engines is not None or gpus == "none"):
        raise ConfigError("--tensor-parallel is for GPUs, and --engines and --gpus none run engines on the CPU")
    if engines is not None:
        if gpus not in {None, "none"}:
            raise ConfigError("--engines is for engines on the CPU; with --gpus there is one engine per GPU")
        return tuple(_on_cpu(number, engines) for number in range(engines))
    if gpus is None:
        return (Placement(arguments=shared),)
    if gpus == "none":
        return (_on_cpu(0, 1),)
    names = [] if gpus == "all" else [name.strip() for name in gpus.split(",")]
    if wrong := [name for name in names if not GPU_NAME.fullmatch(name)]:
        raise ConfigError(
            f"--gpus: {wrong[0]!r} is not a GPU; say all, none, or indices as printed by nvidia-smi, such as 0,1"
        )
    if not available:
        raise ConfigError(NO_GPU)
    chosen = list(available) if gpus == "all" else [_named(name, available) for name in names]
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"--gpus {gpus} names a GPU twice: there is one engine per GPU")
    if len(chosen) % each:
        raise ConfigError(f"--tensor-parallel {each} takes {each} GPUs for each engine, and --gpus names {len(chosen)}")
    return tuple(_on_gpus(chosen[first : first + each], shared) for first in range(0, len(chosen), each))


def pairs(settings: Settings, home: Path, where: Sequence[Placement]) -> tuple[Pair, ...]:
    """One engine and one worker for each placement, with their own names, and sockets in `home`."""
    made = []
    for number, placement in enumerate(where):
        suffix = f"-{placement.label}" if len(where) > 1 else ""
        endpoint = placement.endpoint or engine_endpoint(home, f"-{number}" if number else "")
        own: dict[str, Any] = {"engine_url": endpoint.url, "engine_token": endpoint.secret}
        own["judges"] = settings.judges or default_processes(len(where))
        if placement.label:
            own["engine_name"] = f"{settings.engine_name or socket.gethostname()}-{placement.label}"
        pair_settings = settings.model_copy(update=own)
        made.append(Pair(f"engine{suffix}", f"worker{suffix}", pair_settings, placement, number))
    return tuple(made)


def _named(name: str, available: Sequence[GpuLike]) -> GpuLike:
    found = next((gpu for gpu in available if name in {str(gpu.index), gpu.uuid}), None)
    if found is None:
        known = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in available)
        raise ConfigError(f"--gpus: there is no GPU {name!r}; available: {known}, or all, or none")
    return found


def _on_gpus(gpus: Sequence[GpuLike], shared: tuple[str, ...]) -> Placement:
    """One engine on these GPUs, named by UUID, because CUDA can number them differently from the driver."""
    visible = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)
    label = "-".join(str(gpu.index) for gpu in gpus)
    return Placement(label, ("--device", "cuda", *shared), {VISIBLE: visible})


def _on_cpu(number: int, count: int) -> Placement:
    threads = max(1, (os.cpu_count() or 1) // count)
    return Placement(str(number), ("--device", "cpu", "--threads", str(threads)))
