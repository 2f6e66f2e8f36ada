"""Memory that was freed goes back to the kernel."""

from __future__ import annotations

import torch

from thothy_ai.engine.execution.host_memory import return_freed
from thothy_ai.engine.execution.memory import device_memory

SIZE = 64 << 20
PIECE = 64 << 10  # smaller ones come from the heap, larger ones are returned at once


def held() -> int:
    free, total = device_memory(torch.device("cpu"))
    return total - free


def test_what_was_freed_is_returned() -> None:
    return_freed()
    before = held()
    pieces = [torch.ones(PIECE, dtype=torch.uint8) for _ in range(SIZE // PIECE)]
    last = torch.ones(PIECE, dtype=torch.uint8)  # the heap ends with it, and does not shrink by itself
    assert held() - before > SIZE // 2
    del pieces
    return_freed()
    assert held() - before < SIZE // 4
    assert last.all()
