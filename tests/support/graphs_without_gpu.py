"""Graphs for tests without a GPU: what was captured runs again at each replay, over the same buffers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from thothy_ai.engine.execution import draws, graphs, mixed_graphs
from thothy_ai.engine.execution.rows import Rows, StepInputs
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.models.model import Model


class Stream:
    """Of a device that does nothing."""

    def wait_stream(self, other: Stream) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for, either."""


class Rerun:
    """Stands for a graph: its result, if it has any, stays in place."""

    def __init__(self, run: Callable[[], Tensor | None], result: Tensor | None) -> None:
        self._run, self._result = run, result

    @torch.inference_mode()
    def replay(self) -> None:
        """Run again."""
        result = self._run()
        if result is not None and self._result is not None:
            self._result.copy_(result)


def no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and pools of memory that do nothing."""
    for name, made in {"Stream": Stream, "current_stream": Stream, "graph_pool_handle": object}.items():
        monkeypatch.setattr(torch.cuda, name, made)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


def rerun_captured(monkeypatch: pytest.MonkeyPatch, kept: tuple[int, ...]) -> list[Runner]:
    """Have engines on a CPU capture and replay decode steps, of the sizes `kept`, and their draws; no other steps.

    Returns the runners that do, as they are made.
    """
    runners: list[Runner] = []
    make = Runner.__init__

    def made(runner: Runner, model: Model, *args: Any) -> None:
        make(runner, model, *args)
        if runner._graph_sizes:
            runners.append(runner)
            logits = torch.zeros(runner._max_rows, model.config.vocab_size)
            runner._decode.capture(runner._graph_sizes, logits, timed=False)

    def capture(run: Callable[[], Tensor | None], pool: object) -> tuple[Any, Tensor | None]:
        result = run()
        return Rerun(run, result), result

    def decode_inputs(rows: Rows, size: int) -> StepInputs:
        """With the lengths that the references read on the host."""
        places, counts = rows._metadata[2 * size : 4 * size].view(2, size)
        return rows._inputs(size, size, size, (1,) * size, tuple((places + counts).tolist()))

    no_streams(monkeypatch)
    for module in (graphs, draws):
        monkeypatch.setattr(module, "capture_graph", capture)
    monkeypatch.setattr(draws, "_DRAWS_BEFORE_CAPTURE", 1)
    monkeypatch.setattr(graphs, "_times", lambda captured, pad: {size: 1.0 + (size not in kept) for size in captured})
    monkeypatch.setattr(Rows, "decode_inputs", decode_inputs)
    monkeypatch.setattr(Runner, "__init__", made)
    return runners


class _Noting(TorchDispatchMode):
    """Notes each operation with its arguments and its result."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.noted.append((function, args, kwargs or {}, result))
        return result


class NotedGraph:
    """Stands for a CUDA graph of operations whose shapes depend on no values: they run again over the same tensors."""

    def capture_begin(self, **_: object) -> None:
        """Note what runs from now on."""
        self._mode = _Noting()
        self._mode.__enter__()

    def capture_end(self) -> None:
        """Note nothing more."""
        self._mode.__exit__(None, None, None)

    def replay(self) -> None:
        """Run everything again; results that are no views are copied to where the first ones are."""
        for function, args, kwargs, before in self._mode.noted:
            after = function(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Instant:
    """Stands for an event of a device that takes no time."""

    def __init__(self, **_: object) -> None:
        """It has no settings."""

    def record(self) -> None:
        """It is over at once."""

    synchronize = record

    def elapsed_time(self, _: object) -> float:
        return 0.0


def note_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of steps that prefill are captured on a CPU."""
    no_streams(monkeypatch)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", NotedGraph)
    monkeypatch.setattr(torch.cuda, "Event", _Instant)
    monkeypatch.setattr(mixed_graphs, "weak_ref_tensor", lambda tensor: tensor)
