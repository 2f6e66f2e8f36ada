"""The copy bandwidth of the device's memory: the upper bound of every kernel that computes little."""

from __future__ import annotations

import torch
import triton.testing

_BYTES = 4 << 30


def copy_bandwidth() -> float:
    """GB/s of a device-to-device copy, bytes read and bytes written counted."""
    source = torch.empty(_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    milliseconds = triton.testing.do_bench(lambda: target.copy_(source), return_mode="median")
    return 2 * _BYTES / milliseconds / 1e6
