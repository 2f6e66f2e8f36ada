"""Runs a planned step on the device: builds its inputs there, computes logits, samples.

Everything that could make the host wait is left to `StepHandle.read`, which the core calls when it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.execution.device import use_device
from thothy_ai.engine.execution.graphs import DecodeGraphs, graph_sizes
from thothy_ai.engine.execution.rows import Rows
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.execution.timing import CudaTimer, HostTimer, StepTimer
from thothy_ai.engine.execution.transfers import Readback, send
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.scheduling.scheduler import Scheduled, StepPlan
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.kernels.paged import Attention

_USUAL = tuple(  # what job kinds ask for
    SamplingParams(temperature=temperature, top_p=top_p, repetition_penalty=penalty)
    for temperature, top_p in ((0.8, 0.9), (0.8, 1.0), (0.0, 1.0))
    for penalty in (1.0, 1.1)
)
_FEW = (16, 32, 64, 128)  # tokens: kernels differ by how few a step has


@dataclass(slots=True)
class StepHandle:
    """A launched step. `logits` [R, vocab] are those of its sampling members, in plan order."""

    plan: StepPlan
    timer: StepTimer
    logits: Tensor
    rows: Tensor  # [R] int64, of the sampling members
    positions: Tensor  # [R] int64, where their sampled tokens go
    sampled: Readback | None = None

    @property
    def samplers(self) -> list[Scheduled]:
        """The members that sample, in plan order."""
        return [member for member in self.plan.members if member.samples]

    def read(self) -> list[int]:
        """The sampled tokens, in plan order; waits for this step, not for one that was launched after it."""
        if self.sampled is None:
            raise RuntimeError("the step was not sampled")
        return self.sampled.read()


class Runner:
    """Owns the rows, the KV cache, the graphs and the sampler's state on one device."""

    def __init__(
        self, model: Model, cache: KVCache, attention: Attention, config: EngineConfig, device: torch.device
    ) -> None:
        self._model, self._cache, self._attention, self._device = model, cache, attention, device
        use_device(device)
        longest, rows = config.longest_sequence, config.max_rows
        self._max_rows, self._longest = rows, longest
        self._rows = Rows(rows, longest, config.block_size, model.operations, device)
        self._sampler = Sampler(rows, model.config.vocab_size, device)
        self._timer = CudaTimer if device.type == "cuda" else HostTimer
        self._graph_sizes = graph_sizes(rows) if config.graphs else []
        self._graphs = DecodeGraphs()

    @property
    def replays(self) -> int:
        """Steps that were replayed from a graph, so far."""
        return self._graphs.replays

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> StepHandle:
        """Launch the step's forward pass, up to its logits."""
        use_device(self._device)
        for sequence in plan.admitted:
            self._sampler.set_row(sequence.row, sequence.request.sampling, sequence.seed)
        timer = self._timer()
        timer.start()
        self._rows.update(plan)
        last, rows, positions = self._sampling_facts(plan)
        logits = self._model.logits(self._hidden(plan, last))
        timer.stop()
        return StepHandle(plan, timer, logits, rows, positions)

    @torch.inference_mode()
    def sample(self, step: StepHandle, bitmask: Tensor | None) -> None:
        """Draw the step's tokens under `bitmask` ([R, ceil(vocab/32)] int32 on the host, or None) into the rows."""
        if not len(step.rows):
            step.sampled = Readback(step.rows)
            return
        step.timer.start()
        facts = step.plan.facts
        members = facts.rows[facts.samples > 0].tolist()
        tokens = self._sampler.sample(
            step.logits, step.rows, step.positions, self._rows.token_ids, bitmask, members=members
        )
        self._rows.sampled(step.plan, step.rows, step.positions, tokens)
        step.sampled = Readback(tokens)
        step.timer.stop()

    def warm_up(self, tokens: int) -> None:
        """Run small steps and the largest, of `tokens` that are nobody's, sample all rows in the ways that requests ask
        for, and capture the graphs.

        What would be compiled, or would not fit, in the midst of service is so before the first request. Triton
        compiles without the interpreter's lock, so each way of sampling does so on a thread of its own meanwhile.
        """
        rows, vocab = self._max_rows, self._model.config.vocab_size
        logits = torch.zeros(rows, vocab, dtype=self._model.dtype, device=self._device)
        words = torch.full((rows, -(-vocab // 32)), -1, dtype=torch.int32)
        with ThreadPoolExecutor() as pool:
            ways = [pool.submit(self._sample_once, logits, *way) for way in product(_USUAL, (None, words))]
            for counts in self._steps(tokens):
                self._run_once(counts)
            for way in ways:
                way.result()
        if self._graph_sizes:
            self._capture()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _steps(self, tokens: int) -> Iterator[list[int]]:
        """Tokens of each member, of steps that use all kernels between them; the last has `tokens` if they fit."""
        yield from ([1], [1] * self._max_rows)
        for total in (*_FEW, tokens):
            most = min(total, self._max_rows * self._longest)
            yield sorted(min(self._longest, most - begin) for begin in range(0, most, self._longest))

    @torch.inference_mode()
    def _run_once(self, counts: list[int]) -> None:
        """A step of members that are nobody's."""
        plan = StepPlan(tuple(_nobody(self._rows.padding, count) for count in counts), ())
        last = torch.zeros(self._max_rows, dtype=torch.int64, device=self._device)
        self._model.logits(self._hidden(plan, last))

    @torch.inference_mode()
    def _sample_once(self, logits: Tensor, sampling: SamplingParams, bitmask: Tensor | None) -> None:
        """Draw for all rows, by a sampler of this call's own."""
        use_device(self._device)  # a thread's own setting
        members, vocab = logits.shape
        sampler = Sampler(members, vocab, self._device)
        sampler.set_row(0, sampling, seed=0)
        rows = torch.zeros(members, dtype=torch.int64, device=self._device)
        sampler.sample(logits, rows, rows + 1, self._rows.token_ids, bitmask, members=[0] * members)

    def _hidden(self, plan: StepPlan, wanted: Tensor) -> Tensor:
        """Final hidden states [R, hidden] of the tokens `wanted` [R] among the step's."""
        total, members = plan.tokens, len(plan.members)
        size = self._graphs.size_for(members) if total == members else None
        self._rows.describe(plan, size or members)
        if size is not None:
            return self._graphs.replay(size).index_select(0, wanted)
        tokens, batch = self._rows.step(members, total, plan)
        return self._model.forward(tokens, batch, self._cache, self._attention, wanted)

    @torch.inference_mode()
    def _capture(self) -> None:
        def forward(size: int) -> Tensor:
            tokens, batch = self._rows.step(size, size, None)
            return self._model.forward(tokens, batch, self._cache, self._attention)

        self._graphs.capture(self._graph_sizes, forward, self._rows.pad)

    def _sampling_facts(self, plan: StepPlan) -> Tensor:
        """[3, R] int64 of the sampling members: their last token among the step's, row, position to be sampled."""
        rows, starts, counts, samples, _ = plan.facts
        facts = np.stack((counts.cumsum() - 1, rows, starts + counts))[:, samples > 0]
        return send(facts.astype(np.int32), self._device).to(torch.int64)


def _nobody(row: int, count: int) -> Scheduled:
    """A member of `count` tokens that no request asked for."""
    return Scheduled(Sequence(CoreRequest("", (0,), _USUAL[-1]), max_tokens=1), row, 0, count, samples=False)
