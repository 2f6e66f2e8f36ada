"""What an engine would take of a device, whether that is here or not."""

from __future__ import annotations

import torch

from thothy_ai.engine.errors import OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype
from thothy_ai.engine.model_check.report import MemoryReport
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.sizing import MAX_CONTEXT, kv_tokens_left, plan_memory


def memory_report(
    config: ModelConfig, options: EngineOptions, memory: int | None, name: str
) -> tuple[MemoryReport, str | None]:
    """The figures, and why the model does not fit, if so. `memory`: bytes of a GPU that is not here.

    A GPU that is here is asked how much memory is free; nothing else touches it.
    """
    device = resolve_device(options.device) if memory is None else torch.device("cuda")
    dtype = resolve_dtype(options.dtype, device)
    config = config.within(options.max_context or MAX_CONTEXT)
    plan = plan_memory(config, options, device, dtype, memory)
    tokens, per_token = kv_tokens_left(plan, config, options, dtype)
    report = MemoryReport(
        device=str(device) if memory is None else f"a GPU with {memory / 1e9:.1f} GB",
        weights=plan.weights,
        workspace=plan.workspace,
        available=plan.available,
        kv_tokens=tokens,
        kv_bytes_per_token=per_token,
        dtype=plan.weight_type,
    )
    try:
        plan.require(name)
    except OutOfMemoryError as error:
        return report, str(error)
    return report, None
