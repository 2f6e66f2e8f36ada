"""Assembles a core: sizes the KV pool by the memory measured free, and connects the parts."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import torch

from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core_api import OnEvents
from thothy_ai.engine.errors import OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_kv_dtype
from thothy_ai.engine.execution.memory import MemoryGauge, device_memory
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.sampler import Sampler
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.paged import Attention, AttentionShape

_CPU_KV_TOKENS = 16_384
_MAX_CONTEXT = 32_768  # rows keep their token ids on the device, so that every row pays for a larger context
_GPU_BUFFERS = 1 << 29  # bytes for attention's partial results and for CUDA graphs
_GIB = 1 << 30


def build_core(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
    """A core, not started, around a model that is on its device; OutOfMemoryError with the figures."""
    model, device = loaded.model, loaded.model.device
    kv_dtype = resolve_kv_dtype(options.kv_dtype, model.dtype, device)
    sizes = _sizes(loaded.config, options, device)
    attention = model.operations.attention(_attention_shape(model, sizes, kv_dtype))
    sizes = replace(sizes, group_rows=attention.group_rows)
    kv_bytes = KVCache.bytes_per_block(loaded.config, sizes.block_size, kv_dtype)
    workspace = _workspace(loaded.config, sizes, model.dtype, device)
    config = sizes.with_blocks(_num_blocks(kv_bytes, workspace, sizes, options, device))
    pool = kv_bytes * config.num_blocks
    planned = model.num_bytes + pool + workspace
    _check_memory(planned, pool + workspace, device)
    return EngineCore(
        _runner(model, attention, config, kv_dtype),
        config,
        _info(loaded.name, config, device, model.dtype),
        StepCost.of(loaded.config, kv_bytes=kv_bytes // config.block_size, on_gpu=device.type == "cuda"),
        MemoryGauge(device, planned),
        vocab_size=loaded.config.vocab_size,
        eos=frozenset(loaded.config.eos_token_ids),
        on_events=on_events,
    )


def _runner(model: Model, attention: Attention, config: EngineConfig, kv_dtype: torch.dtype) -> Runner:
    device = model.device
    try:
        cache = KVCache.allocate(model.config, config.num_blocks, config.block_size, kv_dtype, device)
        runner = Runner(model, cache, attention, config, device)
        if device.type == "cuda":
            runner.warm_up(config.token_budget)
    except RuntimeError as error:
        if "out of memory" not in str(error):  # a graph raises another type of error then
            raise
        raise OutOfMemoryError(f"{config.num_blocks} KV blocks and the rows do not fit {device}: {error}") from error
    return runner


def _attention_shape(model: Model, sizes: EngineConfig, kv_dtype: torch.dtype) -> AttentionShape:
    config = model.config
    return AttentionShape(
        max_rows=sizes.max_rows,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        block_size=sizes.block_size,
        max_context=sizes.max_context,
        dtype=model.dtype,
        kv_dtype=kv_dtype,
        device=model.device,
    )


def _sizes(model: ModelConfig, options: EngineOptions, device: torch.device) -> EngineConfig:
    """Sizes by the options, or by the device where an option is None; the pool is sized later."""
    on_gpu = device.type == "cuda"
    return EngineConfig(
        block_size=options.block_size or (32 if on_gpu else 16),
        num_blocks=2,
        max_rows=options.max_rows or (1024 if on_gpu else 64),
        token_budget=options.token_budget or (8192 if on_gpu else 512),
        max_context=min(options.max_context or _MAX_CONTEXT, model.max_context),
        prefix_cache=options.prefix_cache,
        overlap=on_gpu if options.overlap is None else options.overlap,
        graphs=on_gpu if options.graphs is None else on_gpu and options.graphs,
    )


def _check_memory(planned: int, wanted: int, device: torch.device) -> None:
    """OutOfMemoryError if `planned` bytes exceed the memory, or `wanted`, those not allocated yet, what a GPU has free.

    A CPU's allocator may overcommit, and does not raise torch.OutOfMemoryError.
    """
    free, total = device_memory(device)
    if planned > total or (device.type == "cuda" and wanted > free):
        raise OutOfMemoryError(
            f"weights, KV pool and workspace take {planned / _GIB:.1f} GiB, {device} has {total / _GIB:.1f} GiB, of "
            f"which {free / _GIB:.1f} GiB are free beside the weights: a smaller --kv-tokens or --max-rows would fit"
        )


def _num_blocks(
    per_block: int, workspace: int, sizes: EngineConfig, options: EngineOptions, device: torch.device
) -> int:
    """Blocks of the pool, the dummy included; each takes `per_block` bytes."""
    if options.kv_tokens is not None or device.type != "cuda":
        tokens = _CPU_KV_TOKENS if options.kv_tokens is None else options.kv_tokens
        return max(1, -(-tokens // sizes.block_size)) + 1
    torch.cuda.empty_cache()  # memory cached while the weights were loaded
    free, total = torch.cuda.mem_get_info(device)
    room = free - (1 - options.memory_utilization) * total - workspace
    blocks = int(room // per_block)
    if blocks * sizes.block_size < min(sizes.max_context, 1024):
        raise OutOfMemoryError(
            f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB are free beside the weights; at a memory utilization of "
            f"{options.memory_utilization:.2f} and {workspace / _GIB:.1f} GiB of workspace, {max(blocks, 0)} KV blocks "
            f"of {per_block / 2**20:.2f} MiB fit"
        )
    return blocks


def _workspace(model: ModelConfig, sizes: EngineConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes for the largest step's activations, logits and rows; generous, since memory fragments."""
    activations = sizes.token_budget * (6 * model.hidden_size + 4 * model.intermediate_size) * dtype.itemsize
    logits = 2 * sizes.max_rows * model.vocab_size * dtype.itemsize  # of this step and of the previous one
    drawing = Sampler.workspace_bytes(sizes.max_rows, model.vocab_size, device.type)
    rows = sizes.max_rows * sizes.max_context * 4
    if device.type == "cuda":
        return 2 * activations + logits + drawing + rows + _GPU_BUFFERS
    gathered = 8 * sizes.max_context * model.num_heads * model.head_dim * 4
    return 2 * (activations + gathered) + logits + drawing + rows


def _info(name: str, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> EngineInfo:
    label = str(device)
    if device.type == "cuda":
        label = f"{device} {torch.cuda.get_device_name(device)}"
    return EngineInfo(
        session_id=str(uuid.uuid4()),
        model=name,
        device=label,
        dtype=str(dtype).removeprefix("torch."),
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        max_context=config.max_sequence_tokens,
        started_at=time.time(),
        late_deltas=True,
    )
