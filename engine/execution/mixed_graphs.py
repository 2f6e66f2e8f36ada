"""CUDA graphs of steps that prefill and decode: everything between one layer's attention and the next one's is a graph.

Attention itself is launched step by step, since how it is divided depends on the step's lengths; all else depends on
the number of tokens only. Thus a layer costs the host a few launches instead of a dozen: 6 ms per step of qwen3-0.6b
instead of 21, which is as long as an H200 takes for 8,192 tokens of it. Only steps of (nearly) the token budget are
replayed, which is what a step has while requests wait. Graphs keep the queries of each layer, thus budgets are limited.

    graph 0: embedding … queries | attention, layer 0 | graph 1: output projection … queries | attention, layer 1 | …
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.kernels.paged import PLAIN, Attention, AttentionBatch, AttentionParams, LayerCache
from thothy_ai.kernels.step import StepTokens

MOST_TOKENS = 8192
_LEAST_SHARE = 0.97  # of the captured tokens that a step must have: the others are computed for nothing

Body = Callable[[StepTokens, Attention], tuple[Tensor, Tensor]]


class _Piece(NamedTuple):
    """A graph, and the attention that follows it."""

    graph: torch.cuda.CUDAGraph
    q: Tensor
    cache: LayerCache
    params: AttentionParams
    sinks: Tensor | None


class MixedGraphs:
    """The captured body of a model for one number of tokens; none until `capture`."""

    def __init__(self) -> None:
        self._size = 0
        self._pieces: list[_Piece] = []
        self.replays = 0  # of steps, so far

    def capture(self, size: int, layers: int, body: Body, device: torch.device) -> None:
        """Capture `body` for `size` tokens: it calls attention `layers` times, last of all, and returns what that
        returned (flattened) and the residual stream. Its tokens belong to no sequence here.
        """
        self._tokens = torch.zeros(3, size, dtype=torch.int64, device=device)
        tokens = StepTokens(*self._tokens)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            body(tokens, _Recorder(0))  # compiles and loads what must not be compiled or loaded during the capture
            stream.synchronize()
            recorder = _Recorder(layers)
            recorder.begin()
            self._attended, self._residual = body(tokens, recorder)
            self._out = recorder.out
        torch.cuda.current_stream().wait_stream(stream)
        self._size, self._pieces = size, recorder.pieces

    def fits(self, tokens: int) -> bool:
        """Whether a step of so many tokens is replayed."""
        return _LEAST_SHARE * self._size <= tokens <= self._size and bool(self._pieces)

    def run(self, tokens: StepTokens, attention: Attention) -> tuple[Tensor, Tensor]:
        """What the body returns for a step's tokens, over which `attention` is planned, and for padding after them;
        valid until the next call. Padding is written to the dummy block.
        """
        count = len(tokens.ids)
        for kept, sent in zip(self._tokens, tokens, strict=True):
            kept[:count].copy_(sent)
        if count < self._size:
            self._tokens[:, count:].zero_()
        for piece in self._pieces:
            piece.graph.replay()
            attention(piece.q, piece.cache, piece.params, self._out, piece.sinks)
        self.replays += 1
        return self._attended, self._residual


class _Recorder:
    """Stands for attention during a capture: each call ends a graph and, unless it is the last, begins the next."""

    group_rows = 1

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._pool = torch.cuda.graph_pool_handle()
        self._graph = torch.cuda.CUDAGraph()
        self.pieces: list[_Piece] = []
        self.out = torch.empty(0)

    def begin(self) -> None:
        """Begin a graph."""
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def plan(self, batch: AttentionBatch) -> None:
        """Nothing depends on it."""

    def __call__(
        self,
        q: Tensor,
        cache: LayerCache,
        params: AttentionParams = PLAIN,
        out: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Always the same tensor, which the attention of a replay overwrites."""
        del out
        if self._calls:
            self._graph.capture_end()
            self.pieces.append(_Piece(self._graph, q, cache, params, sinks))
        if not len(self.out):
            self.out = torch.zeros_like(q)
        if len(self.pieces) < self._calls:
            self.begin()
        return self.out
