"""Adapters on the device: copies them from host memory, and tells a pass which slots to read.

Copies run on a separate stream, concurrently with the step that they come with, whose members don't read them yet. They
wait for earlier steps, which can read the slots that are overwritten. A later step waits for a copy only if it reads
the copied slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from thothy_ai.engine.api.step import NO_ADAPTER, AdapterCopies, Step
from thothy_ai.engine.execution.transfers import send_into
from thothy_ai.engine.models.layers.adapted import AdapterBank, HostWeights


class DeviceAdapters:
    """Fills a bank's slots, and tells it which ones a pass reads. `weights` finds adapters by number."""

    def __init__(self, bank: AdapterBank, device: torch.device, weights: Callable[[int], HostWeights]) -> None:
        self._bank, self._weights = bank, weights
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._copied: dict[int, torch.cuda.Event] = {}  # by slot, until a step has waited for the copy

    def place(self, copies: AdapterCopies) -> None:
        """Copy adapters to their slots."""
        for number, slot in zip(copies.numbers.tolist(), copies.slots.tolist(), strict=True):
            if self._stream is None:
                self._bank.fill(slot, self._weights(number))
                continue
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._bank.fill(slot, self._weights(number))
                self._copied[slot] = torch.cuda.Event()
                self._copied[slot].record()

    @contextmanager
    def reading(self, step: Step, size: int | None) -> Iterator[None]:
        """Within the block, the model computes the step's tokens with their adapters; `size`: the number of tokens with
        padding, if the step is padded.
        """
        if not step.adapted:
            yield
            return
        self.send(step, size or step.num_tokens)
        self._bank.begin(step.num_tokens)
        try:
            yield
        finally:
            self._bank.end()

    def send(self, step: Step, size: int) -> None:
        """Write the slots of the step's tokens, padded to `size` tokens, to the bank's buffer, and have the device wait
        for those that are being copied. No effect for a step without adapters.
        """
        if not step.adapted:
            return
        for slot in self._copied.keys() & set(step.adapters.tolist()):
            torch.cuda.current_stream().wait_event(self._copied.pop(slot))
        slots = np.full(size, self._bank.slots, np.int32)
        slots[: step.num_tokens] = np.repeat(step.adapters, step.counts)
        slots[slots == NO_ADAPTER] = self._bank.slots
        send_into(slots, self._bank.buffer)
