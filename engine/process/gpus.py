"""The machine's NVIDIA GPUs, asked of the driver's library (NVML). Needs neither torch nor a CUDA context.

https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from thothy_ai.engine.api.identity import visible_devices

_LIBRARY = "libnvidia-ml.so.1"
_CHARACTERS = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its index in the driver's order (PCI bus), UUID ("GPU-…") and name."""

    index: int
    uuid: str
    name: str


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the machine; none without a driver."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return ()
    with _initialised(library) as works:
        count = ctypes.c_uint()
        if not works or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        return tuple(_gpu(library, index) for index in range(count.value))


def visible_gpus(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Of these, the ones that CUDA_VISIBLE_DEVICES lets processes use, in its order; all if it is not set."""
    entries = visible_devices()
    if entries is None:
        return gpus
    named = [gpu for entry in entries for gpu in gpus if entry == str(gpu.index) or gpu.uuid.startswith(entry)]
    return tuple(dict.fromkeys(named))


@contextmanager
def _initialised(library: ctypes.CDLL) -> Iterator[bool]:
    works = library.nvmlInit_v2() == 0
    try:
        yield works
    finally:
        if works:
            library.nvmlShutdown()


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    return Gpu(index, _text(library.nvmlDeviceGetUUID, handle), _text(library.nvmlDeviceGetName, handle))


def _text(function: ctypes._NamedFuncPointer, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_CHARACTERS)
    return buffer.value.decode() if function(handle, buffer, ctypes.c_uint(_CHARACTERS)) == 0 else ""
