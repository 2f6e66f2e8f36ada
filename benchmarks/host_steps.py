"""Where the host's time of a step goes: stages of the core's loop, timed in its own process during a drain.

    python -m benchmarks.host_steps [arguments of `thothy bench drain`]

After the drain's figures follow milliseconds per step, by run and by how the step was launched. Stages that are
indented are parts of the one above. "device idle" is between two steps' events in the stream, and between a step's
forward pass and its sampling. Timing costs some ten microseconds per step.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from benchmarks.results import table
from thothy_ai.engine.core.loop import _Launched
from thothy_ai.engine.execution.timing import CudaTimer, StepTimer
from thothy_ai.engine.process import core_process, remote_engine

Wrapped = Callable[..., Any]
_Milliseconds = dict[str, float]

_CORE_PROCESS = "THOTHY_HOST_STEPS"  # set in the environment of the core's process
_STAGES = (  # of which module, what, and the name in the table
    ("core.loop", "EngineCore._turn", "turn"),
    ("core.loop", "EngineCore._launch", "launch"),
    ("execution.rows", "Rows.send", "- send"),
    ("execution.rows", "Rows.apply", "- send and inputs"),
    ("execution.graphs", "DecodeGraphs.replay", "- graph"),
    ("execution.mixed_graphs", "MixedGraphs.run", "- graphs and attention"),
    ("models.model", "Model.forward", "- eager forward"),
    ("models.model", "Model.tail", "- tail"),
    ("models.model", "Model.logits", "- logits"),
    ("core.parts", "StepLauncher.sample", "- sample, here or below"),
    ("execution.mask_table", "MaskTable.send", "-- masks"),
    ("execution.sampler", "Sampler.sample", "-- choose"),
    ("execution.draws", "DrawGraphs.run", "-- draw"),
    ("execution.transfers", "Readback.__init__", "-- readback"),
    ("core.loop", "EngineCore._read", "read"),
    ("core.parts", "LaunchedStep.read", "- wait for the device"),
    ("core.loop", "take_samples", "- take samples"),
    ("core.tokens", "advance_all", "-- advance"),
    ("core.loop", "start_masks", "start masks"),
    ("core.loop", "EngineCore._settle", "settle"),
    ("core.loop", "EngineCore._publish", "publish"),
    ("core.loop", "EngineCore._plan", "plan"),
    ("core.requests", "Requests.take", "- commands"),
    ("scheduling.step_builder", "StepBuilder.build", "- build"),
    ("core.loop", "EngineCore._sample", "masks: wait, sample"),
    ("core.tokens", "PendingMasks.wait", "- wait for masks"),
    ("grammar.batch", "_compute", "(computing masks)"),
)
_CPU = "turn, of the thread's CPU"
_DEVICE = ("device", "device idle before the step", "device idle before sampling")


class Recorder:
    """Milliseconds by stage, summed over the steps of each class."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Milliseconds] = defaultdict(lambda: defaultdict(float))
        self._now: _Milliseconds = defaultdict(float)
        self._class = ("", "idle")
        self._last_end: torch.cuda.Event | None = None
        self._classes: dict[StepTimer, tuple[str, str]] = {}  # of launched steps, by timer

    def install(self) -> None:
        """Wrap the stages."""
        for module, name, label in _STAGES:
            self._wrap(module, name, self._timed(label))
        self._wrap("core.loop", "EngineCore._launch", self._classifying)
        self._wrap("core.loop", "EngineCore._turn", self._per_turn)
        self._wrap("core.requests", "Requests.abandon", self._reporting)
        self._wrap("execution.timing", "CudaTimer.seconds", self._gaps)

    @staticmethod
    def _wrap(module: str, name: str, wrap: Callable[[Wrapped], Wrapped]) -> None:
        owner: Any = __import__(f"thothy_ai.engine.{module}", fromlist=["_"])
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, wrap(getattr(owner, last)))

    def _timed(self, label: str) -> Callable[[Wrapped], Wrapped]:
        def wrap(function: Wrapped) -> Wrapped:
            @wraps(function)
            def timed(*args: object, **kwargs: object) -> object:
                began = time.perf_counter()
                try:
                    return function(*args, **kwargs)
                finally:
                    self._now[label] += (time.perf_counter() - began) * 1e3

            return timed

        return wrap

    def _classifying(self, function: Wrapped) -> Wrapped:
        @wraps(function)
        def launch(*args: object) -> object:
            launched: _Launched | None = function(*args)
            self._class = ("", "idle")
            if launched is not None:
                step, part = launched.scheduled.step, launched.handle.parts[0]
                singles = step.num_tokens == step.num_members
                how = ("decode graph" if singles else "mixed graphs") if part.replayed else "eager"
                run = launched.scheduled.members[0].request.id.rpartition("-")[0]
                self._class = (run, how)
                self._classes[part.timer] = self._class
                self._now["members"] += step.num_members
                self._now["tokens"] += step.num_tokens
            return launched

        return launch

    def _per_turn(self, function: Wrapped) -> Wrapped:
        @wraps(function)
        def turn(*args: object) -> object:
            self._now.clear()
            cpu = time.thread_time()
            try:
                return function(*args)
            finally:
                self._now[_CPU] += (time.thread_time() - cpu) * 1e3
                self._now["steps"] += 1
                for label, value in self._now.items():
                    self._sums[self._class][label] += value

        return turn

    def _gaps(self, function: Wrapped) -> Wrapped:
        @wraps(function)
        def seconds(timer: CudaTimer) -> float:
            result: float = function(timer)
            sums = self._sums[self._classes.pop(timer, ("", "idle"))]
            parts = timer._parts
            if self._last_end is not None:
                sums[_DEVICE[1]] += self._last_end.elapsed_time(parts[0][0])
            if len(parts) > 1:
                sums[_DEVICE[2]] += parts[0][1].elapsed_time(parts[1][0])
            sums[_DEVICE[0]] += result * 1e3
            self._last_end = parts[-1][1]
            return result

        return seconds

    def _reporting(self, function: Wrapped) -> Wrapped:
        @wraps(function)
        def abandon(*args: object) -> object:
            sys.stderr.write(f"\n{self.report()}\n")
            sys.stderr.flush()
            return function(*args)

        return abandon

    def report(self) -> str:
        """A Markdown table."""
        classes = [key for key, sums in self._sums.items() if sums["steps"] and key[1] != "idle"]
        labels = ["members", "tokens", *(label for *_, label in _STAGES), _CPU, *_DEVICE]
        header = ("ms per step", *(f"{run}: {how}" for run, how in classes))
        rows = [("steps", *(f"{self._sums[key]['steps']:.0f}" for key in classes))]
        for label in labels:
            values = [self._sums[key][label] / self._sums[key]["steps"] for key in classes]
            if any(values):
                rows.append((label, *(f"{value:.2f}" for value in values)))
        return table(header, rows)


def main() -> None:
    """Run the drain with a core whose stages are timed; or, as that core's process, the core."""
    if os.environ.pop(_CORE_PROCESS, None):
        Recorder().install()
        core_process.main()
        return
    if "--kinds" in sys.argv:  # its core runs in a process of its own
        os.environ[_CORE_PROCESS] = "1"
        remote_engine._MODULE = "benchmarks.host_steps"
    else:
        Recorder().install()
    sys.argv[1:1] = ["bench", "drain"]
    runpy.run_module("thothy_ai.cli", run_name="__main__")


if __name__ == "__main__":
    main()
