"""CUDA graphs of steps that prefill and decode: everything between one layer's attention and the next one's is a graph.

Attention itself is launched step by step, since its division depends on the step's lengths, and so are recurrences;
everything else depends on the number of tokens only. A layer therefore costs the host a few launches instead of a
dozen: 5 to 6 ms per step of qwen3-0.6b instead of 12 (21 on a slow host, as long as an H200 takes for 8,192 tokens of
it). There are graphs of a few sizes. Any smaller step is padded to a size that the device computes, attention apart,
faster than the host would launch it without graphs: padding costs less than the device would wait, unless contexts are
so long that attention keeps it busy. Of the larger sizes only the token budget has graphs, for steps of nearly as many
tokens, which is the usual size while requests wait.

    graph 0: embedding … queries | attention, layer 0 | graph 1: output projection … queries | attention, layer 1 | …

All graphs share one pool of memory, since they never run concurrently: queries, too, which attention reads before the
next graph begins.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.execution.graphs import Decided, alone
from thothy_ai.engine.execution.weak_ref import weak_ref_tensor
from thothy_ai.kernels.paged import PLAIN, Attention, AttentionBatch, AttentionParams, LayerCache, Recurrence
from thothy_ai.kernels.step import StepTokens

log = logging.getLogger(__name__)

MAX_TOKENS = 8192  # of a budget with graphs: beyond, the device takes longer than any host, and pools are large
_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144)
_MIN_SHARE = 0.97  # of the token budget that a step must have where padding costs the device time
_TIMED = 4  # layers
_LAUNCHES = 3  # that are timed

Body = Callable[[StepTokens, Attention], tuple[Tensor, Tensor]]


class Sizes(NamedTuple):
    """Numbers of tokens for which there are graphs: `padded`, ascending, to which any smaller step is padded, and the
    token budget.
    """

    padded: tuple[int, ...]
    budget: int

    @classmethod
    def worthwhile(cls, device: Mapping[int, float], host: float) -> Sizes:
        """From the device's seconds for each size, the largest of which is the budget, and the seconds that the host
        takes to launch any of them without graphs.
        """
        return cls(tuple(size for size in sorted(device) if device[size] <= host), max(device))

    def size_for(self, tokens: int) -> int | None:
        """The size that a step of `tokens` tokens is padded to; None if it is not replayed."""
        place = bisect_left(self.padded, tokens)
        if tokens and place < len(self.padded):
            return self.padded[place]
        return self.budget if tokens and _MIN_SHARE * self.budget <= tokens <= self.budget else None


def sizes_up_to(budget: int) -> list[int]:
    """Sizes that may be worthwhile, ascending; the budget is the last."""
    return [*(size for size in _SIZES if size < budget), budget]


class _Piece(NamedTuple):
    """A graph, and what follows it: a layer's attention or recurrence, with weak references to tensors of the pool."""

    graph: torch.cuda.CUDAGraph
    launch: Callable[[Attention], object]


class _Captured(NamedTuple):
    """The graphs of one size, and what the body returned."""

    pieces: list[_Piece]
    last: torch.cuda.CUDAGraph | None  # after the last piece, if the body goes on there
    outs: Mapping[torch.Size, Tensor]  # of attention, by the shape of a token's
    attended: Tensor
    residual: Tensor


class MixedGraphs:
    """The captured body of a model; none until `capture`."""

    def __init__(self, decided: Decided = alone) -> None:
        self._decided = decided
        self._sizes = Sizes((), 0)
        self._captured: dict[int, _Captured] = {}
        self._pool: torch.cuda._POOL_HANDLE
        self._stream: torch.cuda.Stream
        self.replays = 0  # of steps, so far

    def capture(
        self, tokens: Tensor, layers: int, body: Body, *, ends: bool = True, beside: MixedGraphs | None = None
    ) -> None:
        """Capture `body` for the token budget, and for fewer tokens where that is worthwhile. It calls attention
        or recurrences `layers` times, last of all if it `ends` with one, and returns what that gave and the residual
        stream.

        `tokens` [2 + tables, budget] int64, ids of different tokens, positions and slots that belong to no sequence,
        become the buffer of replayed steps. `beside`: a captured set of the same budget, whose memory these share,
        since the two never run concurrently.
        """
        self._tokens, budget = tokens, tokens.shape[1]
        sizes, shared = sizes_up_to(budget), dict[torch.Size, Tensor]()
        if beside is None:  # memory of a pool is used again by captures on the same stream only
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        else:
            self._pool, self._stream, shared = beside._pool, beside._stream, {**beside._captured[budget].outs}
        pool, stream = self._pool, self._stream
        stream.wait_stream(torch.cuda.current_stream())
        captured, device_seconds = dict[int, _Captured](), dict[int, float]()
        with torch.cuda.stream(stream):
            host_seconds = _host_seconds(body, StepTokens.of(tokens[:, : sizes[0]]))
            for size in reversed(sizes):  # the largest first: the smaller ones fit into its memory
                # Fewer tokens take longer each.
                slow = bool(captured) and size / min(captured) * device_seconds[min(captured)] > host_seconds
                if self._decided(slow):
                    continue
                largest = captured[budget].outs if captured else shared
                some = StepTokens.of(tokens[:, :size])
                body(some, _Recorder())  # compiles and loads what must not be compiled or loaded during the capture
                stream.synchronize()
                captured[size] = _Recorder(pool, layers, largest, ends=ends).record(body, some)
                device_seconds[size] = _device_seconds(captured[size])
        torch.cuda.current_stream().wait_stream(stream)
        self._sizes = self._decided(Sizes.worthwhile(device_seconds, host_seconds))
        self._captured = {size: captured[size] for size in {*self._sizes.padded, budget}}
        most = max(self._sizes.padded, default=0)
        log.info("prefill graphs: of steps of up to %d tokens, which are padded, and of nearly %d", most, budget)

    def size_for(self, tokens: int) -> int | None:
        return self._sizes.size_for(tokens)

    def run(self, size: int, tokens: StepTokens, attention: Attention) -> tuple[Tensor, Tensor]:
        """What the body returns for a step's tokens, over which `attention` is planned, and for padding after them;
        valid until the next call. Padding is written to the dummy block.
        """
        count, captured = len(tokens.ids), self._captured[size]
        for kept, sent in zip(self._tokens, (tokens.ids, tokens.positions, *tokens.slots), strict=True):
            kept[:count].copy_(sent)
        if count < size:
            self._tokens[:, count:size].zero_()
        for piece in captured.pieces:
            piece.graph.replay()
            piece.launch(attention)
        if captured.last is not None:
            captured.last.replay()
        self.replays += 1
        return captured.attended, captured.residual


def _host_seconds(body: Body, tokens: StepTokens) -> float:
    """Seconds in which the host launches the body for few tokens, which never fill the device's queue. More tokens do
    not take it less.
    """
    seconds = list[float]()
    for _ in range(1 + _LAUNCHES):  # the first compiles and loads
        torch.cuda.current_stream().synchronize()
        began = time.perf_counter()
        body(tokens, _Recorder())
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def _device_seconds(captured: _Captured) -> float:
    """Device seconds of all pieces, extrapolated from the last few. All are replayed first: that copies them to the
    device, for which the first step of their size would wait, and gives the last ones numbers to compute with.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    pieces, timed = captured.pieces, captured.pieces[-_TIMED:]
    for piece in pieces:
        piece.graph.replay()
    if captured.last is not None:
        captured.last.replay()
    begin.record()
    for piece in timed:
        piece.graph.replay()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds * 1e-3 / len(timed) * len(pieces)


class _Recorder:
    """Stands for attention. During a capture, each call ends a graph and, unless it is the last, begins the next.

    `outs`: attention's results of a larger size, whose first tokens this size uses, by the shape of a token's.
    """

    group_rows = 1

    def __init__(
        self,
        pool: torch.cuda._POOL_HANDLE | None = None,
        calls: int = 0,
        outs: Mapping[torch.Size, Tensor] | None = None,
        *,
        ends: bool = True,
    ) -> None:
        self._pool, self._calls, self._ends = pool, calls, ends
        self._graph: torch.cuda.CUDAGraph
        self._of_larger = outs or {}
        self._pieces: list[_Piece] = []
        self._outs: dict[torch.Size, Tensor] = {}

    def record(self, body: Body, tokens: StepTokens) -> _Captured:
        """Capture the body; after an error, leave the capture."""
        self._begin()
        try:
            attended, residual = body(tokens, self)
            if not self._ends:
                self._graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):
                self._graph.capture_end()
            raise
        if self._ends:
            return _Captured(self._pieces, None, self._outs, attended, residual)
        return _Captured(self._pieces, self._graph, self._outs, weak_ref_tensor(attended), residual)

    def _begin(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def _follow(self, launch: Callable[[Attention], object]) -> None:
        """Keep the graph that was ended with what follows it, and begin the next, unless nothing comes after that."""
        self._pieces.append(_Piece(self._graph, launch))
        if len(self._pieces) < self._calls or not self._ends:
            self._begin()

    def apply(self, layer: Recurrence, given: Tensor, out: Tensor) -> Tensor:
        if self._calls:
            self._graph.capture_end()
            seen, written = weak_ref_tensor(given), weak_ref_tensor(out)
            self._follow(lambda attention: attention.apply(layer, seen, written))
        return out

    def plan(self, batch: AttentionBatch) -> None:
        pass

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        del out  # always the same tensors are returned, which the attention of a replay overwrites
        if self._calls:
            self._graph.capture_end()
        token = torch.Size((q.shape[1], cache.heads.value_size))
        if token not in self._outs:
            larger = self._of_larger.get(token)
            self._outs[token] = q.new_zeros(len(q), *token) if larger is None else larger[: len(q)]
        made = self._outs[token]
        if self._calls:
            queries = weak_ref_tensor(q)
            self._follow(lambda attention: attention(queries, cache, params, made, sinks))
        return made
