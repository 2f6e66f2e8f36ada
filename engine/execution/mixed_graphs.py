"""CUDA graphs of steps that prefill and decode: everything between one layer's attention and the next one's is a graph.

Attention and recurrences are launched without a graph in each step, since the division of their work depends on the
step's lengths; everything else depends only on the number of tokens. A layer therefore costs the host a few launches
instead of a dozen: 5 to 6 ms per step of qwen3-0.6b instead of 12 (21 on a slow host, as long as an H200 takes for
8,192 tokens). Graphs exist for a few small sizes, whose work without attention takes the device less time than the host
needs to launch it without graphs. To pad a smaller step to such a size costs less than the device would wait, unless
contexts are so long that attention keeps it busy. Of the larger sizes, only the token budget has graphs, for steps of
nearly as many tokens, the usual size while requests wait.

    graph 0: embedding … queries | attention, layer 0 | graph 1: output projection … queries | attention, layer 1 | …

All graphs share one memory pool, since they never run concurrently. It holds even the queries, which attention reads
before the next graph begins.
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

from thothy_ai.engine.execution.graphs import Decided, alone, uncollected
from thothy_ai.engine.execution.weak_ref import weak_ref_tensor
from thothy_ai.kernels.paged import PLAIN, Attention, AttentionBatch, AttentionParams, LayerCache, Recurrence
from thothy_ai.kernels.step import StepTokens

log = logging.getLogger(__name__)

MAX_TOKENS = 8192  # largest budget with graphs; beyond, the device is slower than any host, and pools are large
_SIZES = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144)
_MIN_SHARE = 0.97  # share of the token budget from which a step is padded to it
_TIMED = 4  # layers timed
_LAUNCHES = 3  # timed launches

Body = Callable[[StepTokens, Attention], tuple[Tensor, Tensor]]


class Sizes(NamedTuple):
    """Numbers of tokens that have graphs: `padded`, ascending, to which any smaller step is padded, and the token
    budget.
    """

    padded: tuple[int, ...]
    budget: int

    @classmethod
    def worthwhile(cls, device: Mapping[int, float], host: float) -> Sizes:
        """Choose sizes by the device's seconds for each size (the largest is the budget), and by the host's seconds to
        launch any size without graphs.
        """
        return cls(tuple(size for size in sorted(device) if device[size] <= host), max(device))

    def size_for(self, tokens: int) -> int | None:
        """The size that a step of `tokens` tokens is padded to; None if it is not replayed."""
        place = bisect_left(self.padded, tokens)
        if tokens and place < len(self.padded):
            return self.padded[place]
        return self.budget if tokens and _MIN_SHARE * self.budget <= tokens <= self.budget else None


def sizes_up_to(budget: int) -> list[int]:
    """Sizes that may be worthwhile, ascending; the last is the budget."""
    return [*(size for size in _SIZES if size < budget), budget]


class _Piece(NamedTuple):
    """A graph and the launch after it, attention or a recurrence, with weak references to the pool's tensors."""

    graph: torch.cuda.CUDAGraph
    launch: Callable[[Attention], object]


class _Captured(NamedTuple):
    """The graphs of one size, and the body's results."""

    pieces: list[_Piece]
    last: torch.cuda.CUDAGraph | None  # the body's part after the last piece, if any
    outs: Mapping[torch.Size, Tensor]  # attention's results, by a token's shape
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
        self.replays = 0  # steps so far

    def capture(
        self, tokens: Tensor, layers: int, body: Body, *, ends: bool = True, beside: MixedGraphs | None = None
    ) -> None:
        """Capture `body` for the token budget, and for those smaller sizes that are worthwhile. `body` calls attention
        or recurrences `layers` times, as its last operation if it `ends` with one, and returns the last call's result
        and the residual stream.

        `tokens` [2 + tables, budget] int64 (ids of different tokens, positions, and slots of no sequence) becomes the
        input buffer of replayed steps. `beside`: a captured set of the same budget, whose memory is shared, since the
        two sets never run concurrently.
        """
        self._tokens, budget = tokens, tokens.shape[1]
        sizes, shared = sizes_up_to(budget), dict[torch.Size, Tensor]()
        if beside is None:  # a pool's memory is reused only by captures on the same stream
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        else:
            self._pool, self._stream, shared = beside._pool, beside._stream, {**beside._captured[budget].outs}
        pool, stream = self._pool, self._stream
        stream.wait_stream(torch.cuda.current_stream())
        captured, device_seconds = dict[int, _Captured](), dict[int, float]()
        with torch.cuda.stream(stream):
            host_seconds = _host_seconds(body, StepTokens.of(tokens[:, : sizes[0]]))
            for size in reversed(sizes):  # the largest first: smaller ones reuse its memory
                # Smaller steps take longer per token.
                slow = bool(captured) and size / min(captured) * device_seconds[min(captured)] > host_seconds
                if self._decided(slow):
                    continue
                largest = captured[budget].outs if captured else shared
                some = StepTokens.of(tokens[:, :size])
                body(some, _Recorder())  # compiles and loads kernels, which must not happen in a capture
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
        """The body's results for a step's tokens, for which `attention` is planned, and for the padding after them;
        valid until the next call. The padding's KV goes to the dummy block.
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
    """The host's seconds to launch the body for a few tokens, which never fill the device's queue; a lower bound for
    more tokens.
    """
    seconds = list[float]()
    for _ in range(1 + _LAUNCHES):  # the first compiles and loads kernels
        torch.cuda.current_stream().synchronize()
        began = time.perf_counter()
        body(tokens, _Recorder())
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def _device_seconds(captured: _Captured) -> float:
    """Device seconds of all pieces, extrapolated from the last few. All are replayed first, which uploads them (their
    first step would wait for that) and gives the last pieces realistic numbers.
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

    `outs`: a larger size's results of attention, by a token's shape; this size uses their first tokens.
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

    @uncollected()
    def record(self, body: Body, tokens: StepTokens) -> _Captured:
        """Capture the body; an error ends the capture."""
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
        """Keep the ended graph with the launch that follows it, and begin the next graph unless this was the last."""
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
        del out  # the returned tensors are always the same; a replay's attention overwrites them
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
