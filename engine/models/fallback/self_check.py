"""Checks a model that transformers computes by running a few tokens of it.

A token must be computed from its own sequence alone. A model that mixes the tokens of a row by other means than
attention (a convolution, a shift, experts with a capacity), or that takes a token's place in the row for its position,
would be wrong in steps of several sequences. The check therefore computes a few tokens with different neighbours, at
different places in the row, in one step and in two, and the results must agree. It also finds out whether a CUDA graph
of a step gives the same result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.step import StepTokens

if TYPE_CHECKING:
    from thothy_ai.engine.models.fallback.decoder import TransformersDecoder
    from thothy_ai.engine.models.fallback.dry_run import LayerAttention

_BLOCK = 16
_OWN, _OTHER, _EARLY = 7, 5, 4  # tokens: of the compared sequence, of the others, of the former in its first step
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}  # of the norm of states, or of logits
_MEMBERS = 2


class _Part(NamedTuple):
    """Tokens of a sequence from position `start` on; it lies in one block."""

    block: int
    start: int
    tokens: list[int]


class SelfCheck:
    """A decoder, and a cache of one block for each of two sequences; heads are of `width` there."""

    def __init__(
        self, decoder: TransformersDecoder, layers: Sequence[LayerAttention], width: int, operations: Operations
    ) -> None:
        self._decoder, self._operations = decoder, operations
        self._device, self._dtype = decoder.table.device, decoder.table.dtype
        size = (_MEMBERS + 1, _BLOCK, layers[0].num_kv_heads, width)
        pairs = (torch.zeros(2, *size, dtype=self._dtype, device=self._device) for _ in layers)
        self._caches = [LayerCache(keys, values) for keys, values in pairs]
        shape = AttentionShape(
            max_rows=_MEMBERS,
            num_heads=layers[0].num_heads,
            num_kv_heads=layers[0].num_kv_heads,
            head_dim=width,
            block_size=_BLOCK,
            max_context=_BLOCK,
            dtype=self._dtype,
            kv_dtype=self._dtype,
            device=self._device,
        )
        self._attention: Attention = operations.attention(shape)

    @torch.inference_mode()
    def require_independent_tokens(self, kind: str) -> None:
        """UnsupportedModelError if tokens depend on other sequences, or on their places in a row."""
        vocab = len(self._decoder.table)
        own = [(3 + 5 * place) % vocab for place in range(_OWN)]
        one, two = ([(first + 7 * place) % vocab for place in range(_OTHER)] for first in (1, 2))
        at_once = self._states([_Part(1, 0, own), _Part(2, 0, one)])[:_OWN]
        first = self._states([_Part(2, 0, two), _Part(1, 0, own[:_EARLY])])[_OTHER:]
        second = self._states([_Part(2, _OTHER, [0]), _Part(1, _EARLY, own[_EARLY:])])[1:]
        if not bool(at_once.isfinite().all()):
            raise ModelLoadError(f"{kind}: states are NaN or infinite: weights are, or their type is too narrow")
        if not self._alike(at_once, torch.cat([first, second])):
            raise UnsupportedModelError(f"{kind}: tokens depend on other sequences of a step, or on their places in it")

    @torch.inference_mode()
    def captures(self) -> bool:
        """Whether a pass never waits for the device, can be captured, and gives the same when it is replayed."""
        if self._device.type != "cuda":
            return False
        parts = [_Part(1, 0, [3]), _Part(2, 0, [4])]
        with torch.cuda.device(self._device):
            tokens, batch = self._tokens(parts), self._batch(parts, replayed=True)
            expected = self._logits(tokens, self._batch(parts, replayed=False)).clone()
            try:
                with _without_waiting():
                    self._logits(tokens, batch)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    logits = self._logits(tokens, batch)
                logits.zero_()
                graph.replay()
                return self._alike(expected, logits)
            except RuntimeError:
                return False

    def _alike(self, one: Tensor, other: Tensor) -> bool:
        difference = (one.float() - other.float()).norm() / one.float().norm()
        return bool(difference <= _TOLERANCE[self._dtype])

    def _states(self, parts: list[_Part]) -> Tensor:
        """Final hidden states [T, hidden] of parts that make up one step."""
        return self._pass(self._tokens(parts), self._batch(parts, replayed=False))

    def _logits(self, tokens: StepTokens, batch: AttentionBatch) -> Tensor:
        """Logits [T, vocab]: graphs of decode steps include the head."""
        return self._decoder.logits(self._pass(tokens, batch))

    def _pass(self, tokens: StepTokens, batch: AttentionBatch) -> Tensor:
        self._attention.plan(batch)
        return self._decoder.body(tokens, self._caches, self._attention, self._operations)[0]

    def _tokens(self, parts: list[_Part]) -> StepTokens:
        columns = [
            (token, place, part.block * _BLOCK + place)
            for part in parts
            for place, token in enumerate(part.tokens, start=part.start)
        ]
        return StepTokens.of(torch.tensor(columns, dtype=torch.int64).T.contiguous().to(self._device))

    def _batch(self, parts: list[_Part], *, replayed: bool) -> AttentionBatch:
        """A batch for a graph has no lengths on the host."""
        counts, ends = [len(part.tokens) for part in parts], [part.start + len(part.tokens) for part in parts]
        nothing = self._column([0] * len(parts))
        return AttentionBatch(
            block_tables=(self._column([part.block for part in parts])[:, None],),
            rows=self._column(list(range(len(parts)))),
            context_lens=self._column(ends),
            query_starts=self._column([sum(counts[:index]) for index in range(len(counts) + 1)]),
            shared_lens=nothing,
            group_sizes=nothing,
            num_decode=counts.count(1),
            query_lens=() if replayed else tuple(counts),
            kv_lens=() if replayed else tuple(ends),
        )

    def _column(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self._device)


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Operations that would have the host wait for the device raise RuntimeError."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
