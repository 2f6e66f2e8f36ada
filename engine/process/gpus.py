"""The machine's NVIDIA GPUs, as listed by the driver's library (NVML). Needs neither torch nor a CUDA context.

https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
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
    """Every GPU of the machine; empty without a driver."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return ()
    if library.nvmlInit_v2() != 0:
        return ()
    try:
        gpus, count = [], ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        for index in range(count.value):
            handle = ctypes.c_void_p()
            library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
            uuid, name = _text(library.nvmlDeviceGetUUID, handle), _text(library.nvmlDeviceGetName, handle)
            gpus.append(Gpu(index, uuid, name))
        return tuple(gpus)
    finally:
        library.nvmlShutdown()


def visible_gpus(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES allows, in its order; all if it is not set."""
    entries = visible_devices()
    if entries is None:
        return gpus
    named = [gpu for entry in entries for gpu in gpus if entry == str(gpu.index) or gpu.uuid.startswith(entry)]
    return tuple(dict.fromkeys(named))


def _text(function: ctypes._NamedFuncPointer, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_CHARACTERS)
    return buffer.value.decode() if function(handle, buffer, ctypes.c_uint(_CHARACTERS)) == 0 else ""
