"""Assembles a core: sizes the KV pool, prices a step by count, and connects the parts."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import NamedTuple

import torch

from thothy_ai.engine.adapters.folder import AdaptedModel
from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.errors import OutOfMemoryError
from thothy_ai.engine.api.identity import identity_of, printable
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.fingerprint import fingerprint
from thothy_ai.engine.checkpoint.multimodal import renaming
from thothy_ai.engine.core.accounting import StepCost
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.execution.device import device_uuids, resolve_kv_dtype, resolve_state_dtype
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner, StepRunner
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.model_check.sizing import (
    adapter_bytes,
    check_room,
    engine_sizes,
    layer_groups,
    max_blocks,
    num_blocks,
    state_bytes,
    workspace_bytes,
)
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.paged import Attention, AttentionShape

log = logging.getLogger(__name__)

_CPU_RATES = (1.0e11, 1.0e10)  # FLOP/s, byte/s
_GPU_RATES = (7.0e14, 4.3e12)  # measured on an H200: bf16 GEMMs, device copy


class BuiltRunner(NamedTuple):
    """A runner, its sizes, and the bytes planned for its device. `kv_bytes`: a block of each group of layers together;
    `state_bytes`: all states.
    """

    runner: Runner
    config: EngineConfig
    planned: int
    kv_bytes: int
    state_bytes: int


def build_runner(loaded: LoadedModel, options: EngineOptions) -> BuiltRunner:
    """Build a runner, warmed up on a GPU, around a model on its device. OutOfMemoryError has the figures.

    Several ranks must build theirs at the same time.
    """
    model, device, ranks = loaded.model, loaded.model.device, loaded.ranks
    kv_dtype = resolve_kv_dtype(options.kv_dtype, model.dtype, device)
    sizes = engine_sizes(model.config, options, device)
    attention = model.operations.attention(_attention_shape(model, sizes, kv_dtype))
    sizes = replace(sizes, group_rows=attention.group_rows)
    groups = layer_groups(model.config, options)
    kv_bytes = KVCache.bytes_per_block(groups, sizes.block_size, kv_dtype)
    workspace = workspace_bytes(model.config, sizes, model.dtype, device)
    workspace += adapter_bytes(model, sizes, options, model.dtype, device)
    states = state_bytes(model.config, sizes, options, model.dtype)
    most = max_blocks(model.config, sizes, options, device)
    blocks = num_blocks(kv_bytes, workspace, states, most, sizes, options, device)
    config = replace(sizes, num_blocks=blocks)
    if ranks is not None:
        config = ranks.decided(replace(sizes, num_blocks=ranks.least(blocks)))
    pool = kv_bytes * config.num_blocks + states
    planned = model.num_bytes + pool + workspace
    check_room(planned, pool + workspace, device)
    with loaded.phases.timed("KV cache and warm-up"):
        runner = _runner(model, attention, groups, config, kv_dtype, resolve_state_dtype(options.state_dtype), ranks)
    return BuiltRunner(runner, config, planned, kv_bytes * len(config.windows), states)


def build_core(
    loaded: LoadedModel,
    options: EngineOptions,
    on_events: OnEvents,
    grammars: GrammarCompiler | None = None,
    group: Group | None = None,
) -> EngineCore:
    """Build a core, not started yet, around a model on its device. OutOfMemoryError has the figures.

    `group`: the ranks that share the model; this process is the first.
    """
    with nullcontext() if group is None else group.blaming():
        alone, config, planned, kv_bytes, states = build_runner(loaded, options)
    runner: StepRunner = alone if group is None else group.leading(alone, config, loaded.config.vocab_size)
    base = _base(loaded, config, options, alone) if group is None else None
    log.info("model %s: loaded in %s", loaded.name, loaded.phases)
    device = loaded.model.device
    devices = (device,) if group is None else group.devices
    return EngineCore(
        runner,
        config,
        _info(loaded, config, options, devices),
        step_cost(
            loaded.config,
            kv_bytes=len(devices) * kv_bytes // config.block_size,  # of all devices, like the floating-point operations
            state_bytes=len(devices) * states // max(1, config.state_slots),
            on_gpu=device.type == "cuda",
        ),
        MemoryGauge(device, planned),
        vocab_size=loaded.config.vocab_size,
        eos=frozenset(loaded.config.eos_token_ids),
        on_events=on_events,
        grammars=grammars,
        repeatable=group is None,
        base=base,
        step_seconds=alone.seconds_by_size,
    )


def step_cost(config: ModelConfig, *, kv_bytes: int, state_bytes: int = 0, on_gpu: bool) -> StepCost:
    """Costs of a model with `kv_bytes` of KV per token over all layers, and `state_bytes` of states per row."""
    flops, bandwidth = _GPU_RATES if on_gpu else _CPU_RATES
    widths = Counter[int | None]()  # width of heads, by window
    for window, heads in zip(config.architecture.windows, config.attended, strict=True):
        if heads is not None:
            widths[window] += heads.size
    return StepCost(
        token=2 * config.hidden_size * (config.mixer_width + 3 * config.active_inner) / flops,
        sample=2 * config.hidden_size * config.vocab_size / flops,
        attended=4 * config.num_heads * widths.total() / flops,
        read=kv_bytes / bandwidth,
        state=2 * state_bytes / bandwidth,
        windows=tuple((window, width / widths.total()) for window, width in widths.items()),
        chunked=config.chunked,
    )


def _base(loaded: LoadedModel, config: EngineConfig, options: EngineOptions, runner: Runner) -> AdaptedModel:
    """The base model that adapters are checked against."""
    names = (loaded.name, identity_of(options).model_name, *(() if options.model is None else (str(options.model),)))
    return AdaptedModel(
        loaded.model.adapters,
        names,
        renaming(loaded.config.container, loaded.config.family),
        loaded.config.vocab_size,
        loaded.model.dtype,
        config.adapter_rank,
        pinned=loaded.model.device.type == "cuda",
        make_room=runner.start_adapters,
    )


def _runner(
    model: Model,
    attention: Attention,
    groups: LayerGroups,
    config: EngineConfig,
    kv_dtype: torch.dtype,
    state_dtype: torch.dtype,
    ranks: Ranks | None,
) -> Runner:
    device = model.device
    try:
        cache = KVCache.allocate(
            model.config,
            config.num_blocks,
            config.block_size,
            kv_dtype,
            device,
            groups=groups,
            slots=config.state_slots,
            state_dtype=state_dtype,
            inputs_dtype=model.dtype,
        )
        runner = Runner(model, cache, attention, config, device, ranks)
        if device.type == "cuda":
            runner.warm_up(config.token_budget)
    except RuntimeError as error:
        if "out of memory" not in str(error):  # graphs raise another type of error
            raise
        states = f", {config.state_slots} states" if config.recurrent else ""
        raise OutOfMemoryError(
            f"{config.num_blocks} KV blocks{states} and the rows do not fit {device}: {error}"
        ) from error
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
        others=config.other_heads,
        latent=config.usual_heads.latent,
    )


def _info(
    loaded: LoadedModel, config: EngineConfig, options: EngineOptions, devices: Sequence[torch.device]
) -> EngineInfo:
    device = devices[0]
    label = f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)
    if len(devices) > 1:
        label = f"{len(devices)} x {label}"
    return EngineInfo(
        session_id=options.session_id or str(uuid.uuid4()),
        model=printable(loaded.name),
        device=label,
        dtype=str(loaded.model.dtype).removeprefix("torch."),
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        max_context=config.max_sequence_tokens,
        started_at=time.time(),
        parameters=num_parameters(loaded.config),
        end_tokens=tuple(loaded.config.eos_token_ids),
        devices=tuple(uuid for each in devices for uuid in device_uuids(each)),
        capacity=config.max_rows,
        weights=fingerprint(options.model) if options.model is not None else "",
        budgeted_context=config.budgeted_context,
        min_kv_budget=config.min_kv_budget,
        keeps_all=config.keeps_all,
        **asdict(identity_of(options)),
    )
