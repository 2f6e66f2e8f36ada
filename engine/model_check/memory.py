"""The memory that an engine would take on a device, which can be absent."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, resolve_kv_dtype
from thothy_ai.engine.model_check.report import MemoryReport
from thothy_ai.engine.model_check.sizing import GB, MAX_CONTEXT, MemoryPlan, kv_left, plan_memory
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.formats import weight_format


@dataclass(frozen=True, slots=True)
class Target:
    """The device of a model, and the type of its activations.

    `memory`: bytes of an absent GPU. `ranks`: how many such devices share the model.
    """

    device: torch.device
    dtype: torch.dtype
    memory: int | None
    ranks: int = 1

    @classmethod
    def of(cls, options: EngineOptions, memory: int | None) -> Target:
        """The target by these options; InvalidRequestError for a missing device, or a type that it does not support."""
        device = resolve_device(options.device) if memory is None else torch.device("cuda")
        asked = device if memory is None else torch.device("meta")
        weight_format(options.weights, asked)
        dtype = resolve_dtype(options.dtype, device)
        resolve_kv_dtype(options.kv_dtype, dtype, asked)
        return cls(device, dtype, memory, options.tensor_parallel)

    def __str__(self) -> str:
        one = str(self.device) if self.memory is None else f"a GPU with {self.memory / GB:.1f} GB"
        return one if self.ranks == 1 else f"each of {self.ranks} devices like {one}"


def memory_report(config: ModelConfig, options: EngineOptions, target: Target) -> tuple[MemoryReport, MemoryPlan]:
    """The figures of the report, and the plan behind them.

    A present GPU is asked for its free memory, and not used otherwise.
    """
    config = config.within(options.max_context or MAX_CONTEXT)
    plan = plan_memory(config, options, target.device, target.dtype, target.memory)
    left = kv_left(plan, config, options, target.dtype)
    report = MemoryReport(
        device=str(target),
        weights=plan.weights,
        workspace=plan.workspace,
        available=plan.available,
        kv_tokens=left.tokens,
        kv_bytes_per_token=left.bytes_per_token,
        kv_tokens_by_length=left.by_length,
        kv_budget=left.budget,
        budgeted_sequences=left.budgeted,
        keeps_all=left.keeps_all,
        dtype=plan.weight_type,
    )
    return report, plan
