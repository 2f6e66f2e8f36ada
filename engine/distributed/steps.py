"""Sends steps from the first rank to the others, whose runners repeat what the first rank's does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum

from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import MAX_NEW_MASKS, Step, StepMasks
from thothy_ai.engine.distributed.shared_memory import FrameWriter
from thothy_ai.engine.execution.runner import Runner, sample_or_retry
from thothy_ai.engine.execution.step_handle import StepHandle

_HEAD = struct.Struct("<qq")  # the operation, and the step's number
_MIN_BYTES = 1 << 24
_COLUMN_BYTES = 256  # per row, in all columns of a step together


class _Do(IntEnum):
    FORWARD = 0
    SAMPLE = 1
    SAMPLE_MASKED = 2
    END = 3


def ring_bytes(config: EngineConfig, vocab_size: int) -> int:
    """Bytes for a few steps of this size."""
    masks = MAX_NEW_MASKS * config.max_rows * -(-vocab_size // 32) * 4
    tokens = config.max_rows * (config.max_context + _COLUMN_BYTES) * 4
    return (_MIN_BYTES + 2 * (masks + tokens)) // 4096 * 4096


class LeadingRunner:
    """A runner for `EngineCore` that runs each step on this rank's device and on the others'.

    `blaming` replaces an error by that of the lost rank that caused it.
    """

    def __init__(
        self, runner: Runner, others: Sequence[FrameWriter], blaming: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._runner, self._others, self._blaming = runner, others, blaming
        self._number = 0
        self._unsampled: dict[int, int] = {}  # step numbers by the identity of their handles

    def forward(self, step: Step) -> StepHandle:
        self._number += 1
        with self._blaming():
            self._send(_Do.FORWARD, self._number, step.to_bytes())
            handle = self._runner.forward(step)
        self._unsampled[id(handle)] = self._number
        return handle

    def sample(self, handle: StepHandle, masks: StepMasks | None) -> None:
        with self._blaming():
            if (number := self._unsampled.pop(id(handle), None)) is not None:  # None: a retry, on this rank alone
                do = _Do.SAMPLE if masks is None else _Do.SAMPLE_MASKED
                self._send(do, number, b"" if masks is None else masks.to_bytes())
            self._runner.sample(handle, masks)

    def end(self) -> None:
        """Tell the other ranks that no more steps will come."""
        self._send(_Do.END)

    def _send(self, do: _Do, number: int = 0, data: bytes = b"") -> None:
        for each in self._others:
            each.write(_HEAD.pack(do, number), data)


def follow(runner: Runner, frames: Iterable[memoryview]) -> None:
    """Run the steps that the first rank sends, until it sends no more."""
    launched: dict[int, StepHandle] = {}
    for frame in frames:
        do, number = _HEAD.unpack_from(frame)
        data = frame[_HEAD.size :]
        match do:
            case _Do.FORWARD:
                launched[number] = runner.forward(Step.from_bytes(bytes(data)))  # the step outlives the frame
            case _Do.SAMPLE:
                sample_or_retry(runner, launched.pop(number), None)
            case _Do.SAMPLE_MASKED:
                sample_or_retry(runner, launched.pop(number), StepMasks.from_bytes(data))
            case _Do.END:
                return
