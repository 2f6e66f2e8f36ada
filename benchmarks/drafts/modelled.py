"""The engine itself over a modelled device: steps compute nothing, and take as long as those of an H200.

The clock is the processor time that this process takes, all threads added, and the time that the host waits for the
device: a step begins when it is launched and the one before it has ended. What the host would need for calls of the
device's driver, and does not here, was measured on an H100.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.device_model import COPY, GEMM, STEP_SECONDS, Device
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step, StepMasks, StepResult
from thothy_ai.engine.core import loop
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.execution.graphs import graph_sizes
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner

ROWS = 512
BLOCK = 32
SIZES = graph_sizes(ROWS)
LAUNCH, SAMPLE = 0.52e-3, 0.52e-3  # of the host, with graphs: "Host time of a step with schemas"


class ModelledDevice:
    """Implements `StepRunner`. `now` is the clock. `idle`: seconds in which it waited for the host, of steps of so many
    `rows` in all.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._began, self._waited, self._free = time.process_time(), 0.0, 0.0
        self.idle, self.rows = 0.0, 0

    def now(self) -> float:
        return time.process_time() - self._began + self._waited

    def forward(self, step: Step) -> _Handle:
        self._waited += LAUNCH
        now = self.now()
        seconds = self._seconds(step)
        self.idle += max(0.0, now - self._free)
        self.rows += len(np.unique(step.rows))
        self._free = max(now, self._free) + seconds
        self._waited -= self.now() - now
        return _Handle(self, step, seconds, self._free)

    def sample(self, _: _Handle, __: StepMasks | None) -> None:
        self._waited += SAMPLE

    def wait(self, until: float) -> None:
        self._waited += max(0.0, until - self.now())

    def _seconds(self, step: Step) -> float:
        """The seconds of a step, padded to a captured size if it only decodes."""
        parts = self._device.parts(step)
        if step.num_tokens == step.num_members <= ROWS:
            size = SIZES[bisect_left(SIZES, step.num_tokens)]
            return self.of_size(size) + parts["decode"]
        return parts.total()

    def of_size(self, size: int) -> float:
        """The seconds of a decode step of a captured size, before any KV is read."""
        device = self._device
        head = device.hidden * device.vocab * 2
        gemms = device.layers * device.gemms.seconds(size, device.layer_parameters)
        return gemms + max(size * head / GEMM, head / COPY) + STEP_SECONDS

    def core(self, vocab_size: int, end: int, on_events: OnEvents, *, drafts: bool) -> loop.EngineCore:
        """A core with its clock, not started."""
        loop.time = SimpleNamespace(perf_counter=self.now)  # type: ignore[assignment]
        blocks = self._device.pool_tokens // BLOCK
        config = EngineConfig(BLOCK, blocks, ROWS, 8192, 8192, group_rows=8, graphs=True, drafts=drafts)
        stand_in: Runner = self  # type: ignore[assignment]
        return loop.EngineCore(
            stand_in,
            config,
            EngineInfo("", "", "", "", BLOCK, blocks, 8192, 0.0),
            StepCost(1e-9, 1e-9, 1e-12, 1e-12),
            MemoryGauge(torch.device("cpu"), 0),
            vocab_size=vocab_size,
            eos=frozenset({end}),
            on_events=on_events,
            step_seconds={size: self.of_size(size) for size in SIZES},
        )


@dataclass(frozen=True, slots=True)
class _Handle:
    device: ModelledDevice
    step: Step
    seconds: float
    ends: float

    def read(self) -> StepResult:
        self.device.wait(self.ends)
        return StepResult([0] * self.step.num_sampling, self.seconds, replayed=True)
