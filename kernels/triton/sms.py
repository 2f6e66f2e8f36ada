"""What a GPU's streaming multiprocessors (SMs) hold: kernels are cut by it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

RESERVED = 1024  # bytes of shared memory that the driver takes for each program


@dataclass(frozen=True)
class SMs:
    """A GPU's: their `count`; the bytes of shared memory that one has, and that one program may have of them."""

    count: int
    shared: int
    shared_of_program: int

    @staticmethod
    def of(device: torch.device) -> SMs:
        """Those of a device."""
        properties = torch.cuda.get_device_properties(device)
        return SMs(
            properties.multi_processor_count,
            properties.shared_memory_per_multiprocessor,
            properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]  # torch forgot it in its stubs
        )
