"""Runs a planned step on the device: builds its inputs there, computes logits, samples.

Everything that could make the host wait is left to `StepHandle.read`, which the core calls when it chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.kv_cache import KVCache
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.rows import Rows
from thothy_ai.engine.sampler import Sampler
from thothy_ai.engine.scheduler import Scheduled, StepPlan
from thothy_ai.engine.timing import CudaTimer, HostTimer, StepTimer
from thothy_ai.kernels.attention import AttentionBatch


@dataclass(slots=True)
class StepHandle:
    """A launched step. `logits` [R, vocab] are those of its sampling members, in plan order."""

    plan: StepPlan
    timer: StepTimer
    logits: Tensor
    rows: Tensor  # [R] of the sampling members
    positions: Tensor  # [R] where their sampled tokens go
    sampled: Tensor | None = None

    @property
    def samplers(self) -> list[Scheduled]:
        """The members that sample, in plan order."""
        return [member for member in self.plan.members if member.samples]

    def read(self) -> list[int]:
        """The sampled tokens, in plan order; waits for the step."""
        if self.sampled is None:
            raise RuntimeError("the step was not sampled")
        tokens: list[int] = self.sampled.tolist()
        return tokens


class Runner:
    """Owns the rows, the KV cache and the sampler's state on one device."""

    def __init__(self, model: Model, cache: KVCache, config: EngineConfig, device: torch.device) -> None:
        self._model = model
        self._cache = cache
        self._device = device
        self._block_size = config.block_size
        self._rows = Rows(config.max_rows, config.longest_sequence, config.block_size, device)
        self._sampler = Sampler(config.max_rows, model.config.vocab_size, device)
        self._timer = CudaTimer if device.type == "cuda" else HostTimer

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> StepHandle:
        """Launch the step's forward pass, up to its logits."""
        for sequence in plan.admitted:
            self._sampler.set_row(sequence.row, sequence.request.sampling, sequence.seed)
        timer = self._timer()
        timer.start()
        self._rows.update(plan)
        rows, starts, counts = self._send(plan)
        ends = starts + counts
        hidden = self._hidden(plan, rows, starts, counts)
        sampling, last = self._sampling_members(plan)
        logits = self._model.logits(hidden[last])
        timer.stop()
        return StepHandle(plan, timer, logits, rows[sampling], ends[sampling])

    @torch.inference_mode()
    def sample(self, step: StepHandle, bitmask: Tensor | None) -> None:
        """Draw the step's tokens under `bitmask` ([R, ceil(vocab/32)] int32 on the host, or None) into the rows."""
        if not len(step.rows):
            step.sampled = step.rows
            return
        step.timer.start()
        mask = None if bitmask is None else bitmask.to(self._device, non_blocking=True)
        tokens = self._rows.token_ids
        step.sampled = self._sampler.sample(
            step.logits,
            step.rows,
            step.positions,
            token_ids=tokens,
            known=step.positions,
            bitmask=mask,
            members=[member.row for member in step.samplers],
        )
        tokens[step.rows, step.positions] = step.sampled
        self._rows.sampled(step.plan)
        step.timer.stop()

    def _send(self, plan: StepPlan) -> Tensor:
        """[3, S] int64 on the device: row, first position and token count of each member."""
        facts = [(member.row, member.start, member.count) for member in plan.members]
        return torch.tensor(facts, dtype=torch.int64).T.contiguous().to(self._device, non_blocking=True)

    def _hidden(self, plan: StepPlan, rows: Tensor, starts: Tensor, counts: Tensor) -> Tensor:
        """Final hidden states [T, hidden] of the step's tokens."""
        total = plan.tokens
        query_starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        member = torch.repeat_interleave(torch.arange(len(rows), device=self._device), counts, output_size=total)
        offsets = torch.arange(total, device=self._device) - query_starts[member]
        positions = starts[member] + offsets
        row = rows[member]
        kv_lens = tuple(member.start + member.count for member in plan.members)
        blocks = -(-max(kv_lens) // self._block_size)
        tables = self._rows.block_tables
        block = tables[row, positions // self._block_size].to(torch.int64)
        batch = AttentionBatch(
            block_tables=tables[rows, :blocks],
            context_lens=(starts + counts).to(torch.int32),
            query_starts=query_starts.to(torch.int32),
            num_decode=sum(member.count == 1 for member in plan.members),
            query_lens=tuple(member.count for member in plan.members),
            kv_lens=kv_lens,
        )
        slots = block * self._block_size + positions % self._block_size
        return self._model.forward(self._rows.token_ids[row, positions], positions, slots, batch, self._cache)

    def _sampling_members(self, plan: StepPlan) -> tuple[Tensor, Tensor]:
        """Indices of the sampling members [R], and of their last tokens among the step's tokens [R]."""
        sampling: list[int] = []
        last: list[int] = []
        end = 0
        for index, member in enumerate(plan.members):
            end += member.count
            if member.samples:
                sampling.append(index)
                last.append(end - 1)
        indices = torch.tensor([sampling, last], dtype=torch.int64).to(self._device, non_blocking=True)
        return indices[0], indices[1]
