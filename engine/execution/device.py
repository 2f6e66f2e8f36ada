"""The device that an engine runs on, and its data types."""

from __future__ import annotations

import logging
import threading

import torch

from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.operations import operations_for

log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_KV_DTYPES = {"auto": None, "fp8": FP8}
_FIRST_WITH_FP8 = (8, 9)


def resolve_device(name: str) -> torch.device:
    """The device for "auto", "cpu", "cuda" or "cuda:N"; InvalidRequestError for one that does not exist."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidRequestError(f"unknown device {name!r}") from error
    if device.type not in {"cpu", "cuda"}:
        raise InvalidRequestError(f"device {name!r} is not supported: cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidRequestError(f"device {name!r} is not there: torch sees {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def device_uuids(device: torch.device) -> tuple[str, ...]:
    """The UUID of this GPU in the driver's form ("GPU-…"), or its index if torch has no UUID; empty for a CPU."""
    if device.type != "cuda":
        return ()
    found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return (f"GPU-{found}" if found else str(device.index or 0),)


def use_device(device: torch.device) -> None:
    """Make the device this thread's current one, which events, streams and Triton's launches use."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def start_triton(device: torch.device) -> threading.Thread:
    """Launch a kernel without effect on a separate thread; does nothing on a CPU.

    Triton's first launch takes a second: it imports its dialects, finds the driver and hashes its own sources. While
    weights are read, most of that time is hidden. Errors are dropped, since they recur when a kernel is needed.
    """

    def launch() -> None:
        if device.type != "cuda":
            return
        try:
            use_device(device)
            target, index, values = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(3))
            operations_for(device).scatter(target, index, values)
        except Exception:
            log.debug("Triton's first launch failed", exc_info=True)

    thread = threading.Thread(target=launch, name="engine-triton", daemon=True)
    thread.start()
    return thread


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The floating-point type for "auto" or a torch name such as "bfloat16"."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise InvalidRequestError(f"dtype {name!r} is not supported: auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def resolve_kv_dtype(name: str, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The type of the KV cache for "auto" (the model's) or "fp8"."""
    if name not in _KV_DTYPES:
        raise InvalidRequestError(f"KV type {name!r} is not supported: {', '.join(_KV_DTYPES)}")
    if name == "fp8":
        refuse_fp8_without_hardware(device)
    return _KV_DTYPES[name] or dtype


def resolve_state_dtype(name: str) -> torch.dtype:
    """The type of recurrent layers' states."""
    return _DTYPES[name]


def refuse_fp8_without_hardware(device: torch.device) -> None:
    """InvalidRequestError for a GPU that can't multiply fp8; a CPU computes with converted values."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < _FIRST_WITH_FP8:
        name, (major, minor) = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        raise InvalidRequestError(f"{name} (compute capability {major}.{minor}) has no fp8: 8.9 or newer does")
