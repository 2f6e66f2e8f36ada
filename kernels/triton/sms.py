"""The streaming multiprocessors (SMs) of a GPU: their number and shared memory, to which tiles are fitted."""

from __future__ import annotations

from dataclasses import dataclass

import torch

RESERVED = 1024  # bytes of shared memory that the driver takes per program


@dataclass(frozen=True)
class SMs:
    """`shared`: bytes of shared memory of an SM. `shared_of_program`: how many of these one program can use."""

    count: int
    shared: int
    shared_of_program: int

    @staticmethod
    def of(device: torch.device) -> SMs:
        properties = torch.cuda.get_device_properties(device)
        return SMs(
            properties.multi_processor_count,
            properties.shared_memory_per_multiprocessor,
            properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]  # torch forgot it in its stubs
        )
