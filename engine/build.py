"""Puts a core together: picks the device, sizes the KV pool from what is measured free, wires the parts."""

from __future__ import annotations

import time
import uuid

import torch

from thothy_ai.engine.accounting import StepCost
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core import EngineCore
from thothy_ai.engine.core_api import OnEvents
from thothy_ai.engine.errors import InvalidRequestError, OutOfMemoryError
from thothy_ai.engine.kv_cache import KVCache
from thothy_ai.engine.loader import LoadedModel
from thothy_ai.engine.memory import MemoryGauge, device_memory
from thothy_ai.engine.model_config import ModelConfig
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.runner import Runner
from thothy_ai.engine.sampler import Sampler

_CPU_KV_TOKENS = 16_384
_MAX_CONTEXT = 32_768  # rows keep their token ids on the device, so a huge context would cost every row
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_GIB = 1 << 30


def resolve_device(name: str) -> torch.device:
    """The device for "auto", "cpu", "cuda" or "cuda:N"; InvalidRequestError for one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidRequestError(f"unknown device {name!r}") from error
    if device.type not in {"cpu", "cuda"}:
        raise InvalidRequestError(f"device {name!r} is not supported: cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidRequestError(f"device {name!r} is not there: torch sees {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The floating-point type for "auto" or a torch name such as "bfloat16"."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise InvalidRequestError(f"dtype {name!r} is not supported: auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def build_core(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
    """A core, not started, around a model that is on its device already; OutOfMemoryError with the numbers."""
    model = loaded.model
    device, dtype = model.device, model.dtype
    config = _size(loaded.config, options, device, dtype)
    kv_bytes = KVCache.bytes_per_block(loaded.config, config.block_size, dtype)
    planned = model.num_bytes + kv_bytes * config.num_blocks + _workspace(loaded.config, config, dtype)
    _refuse_more_than_there_is(planned, device)
    return EngineCore(
        _runner(loaded, config, device, dtype),
        config,
        _info(loaded.name, config, device, dtype),
        StepCost.of(loaded.config, kv_bytes=kv_bytes // config.block_size, on_gpu=device.type == "cuda"),
        MemoryGauge(device, planned),
        vocab_size=loaded.config.vocab_size,
        eos=frozenset(loaded.config.eos_token_ids),
        on_events=on_events,
    )


def _runner(loaded: LoadedModel, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Runner:
    try:
        cache = KVCache.allocate(loaded.config, config.num_blocks, config.block_size, dtype, device)
        return Runner(loaded.model, cache, config, device)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{config.num_blocks} KV blocks and the rows do not fit {device}: {error}") from error


def _size(model: ModelConfig, options: EngineOptions, device: torch.device, dtype: torch.dtype) -> EngineConfig:
    on_gpu = device.type == "cuda"
    context = min(options.max_context or _MAX_CONTEXT, model.max_context)
    sizes = EngineConfig(
        block_size=options.block_size,
        num_blocks=2,
        max_rows=options.max_rows or (256 if on_gpu else 64),
        token_budget=options.token_budget or (8192 if on_gpu else 512),
        max_context=context,
        prefix_cache=options.prefix_cache,
        overlap=on_gpu if options.overlap is None else options.overlap,
    )
    return sizes.with_blocks(_num_blocks(model, sizes, options, device, dtype))


def _refuse_more_than_there_is(planned: int, device: torch.device) -> None:
    """A CPU's allocator may promise what is not there; torch.OutOfMemoryError is a GPU's alone."""
    _, total = device_memory(device)
    if planned > total:
        raise OutOfMemoryError(
            f"weights, KV pool and workspace take {planned / _GIB:.1f} GiB, {device} has {total / _GIB:.1f} GiB: "
            "a smaller --kv-tokens or --max-rows would fit"
        )


def _num_blocks(
    model: ModelConfig, sizes: EngineConfig, options: EngineOptions, device: torch.device, dtype: torch.dtype
) -> int:
    """Blocks of the pool, the dummy included."""
    per_block = KVCache.bytes_per_block(model, sizes.block_size, dtype)
    if options.kv_tokens is not None or device.type != "cuda":
        tokens = _CPU_KV_TOKENS if options.kv_tokens is None else options.kv_tokens
        return max(1, -(-tokens // sizes.block_size)) + 1
    free, total = torch.cuda.mem_get_info(device)
    workspace = _workspace(model, sizes, dtype)
    room = free - (1 - options.memory_utilization) * total - workspace
    blocks = int(room // per_block)
    if blocks * sizes.block_size < min(sizes.max_context, 1024):
        raise OutOfMemoryError(
            f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB are free beside the weights; at a memory utilization of "
            f"{options.memory_utilization:.2f} and {workspace / _GIB:.1f} GiB of workspace, {max(blocks, 0)} KV blocks "
            f"of {per_block / 2**20:.2f} MiB fit"
        )
    return blocks


def _workspace(model: ModelConfig, sizes: EngineConfig, dtype: torch.dtype) -> int:
    """Bytes of the largest step's activations, logits and rows; generous, since the allocator fragments."""
    activations = sizes.token_budget * (6 * model.hidden_size + 4 * model.intermediate_size) * dtype.itemsize
    logits = sizes.max_rows * model.vocab_size * 4 + Sampler.workspace_bytes(sizes.max_rows, model.vocab_size)
    rows = sizes.max_rows * sizes.max_context * 8
    gathered = 8 * sizes.max_context * model.num_heads * model.head_dim * 4
    return 2 * (activations + gathered) + logits + rows


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
        max_context=config.longest_sequence,
        started_at=time.time(),
    )
