"""The continuous batching of transformers, with `sdpa` attention and otherwise its defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from thothy_ai.bench.drain import DrainFailedError
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype

Drain = Callable[[Sequence[CoreRequest]], list[int]]  # the number of output tokens of each request, in order
_NEVER = -1  # no token has this id
_PATIENCE = 1.0  # seconds between checks that the manager's thread runs
_CPU_KV_TOKENS, _CPU_BUDGET = 16_384, 512  # the same as for our engine


def name() -> str:
    return f"transformers {transformers.__version__}"


@contextmanager
def resident(folder: Path, options: EngineOptions, *, real_weights: bool) -> Iterator[Drain]:
    """A continuous batching manager with the folder's model and captured graphs, until the context ends."""
    device = resolve_device(options.device)
    loading: dict[str, Any] = {"dtype": resolve_dtype(options.dtype, device), "attn_implementation": "sdpa"}
    if real_weights:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, **loading)
        model = model.to(device).eval()
    else:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with device:
            model = AutoModelForCausalLM.from_config(config, **loading).eval()
    settings = GenerationConfig(do_sample=False, eos_token_id=_NEVER, pad_token_id=0, max_new_tokens=1)
    with model.continuous_batching_context_manager(
        generation_config=settings,
        continuous_batching_config=_sizes(options),
        timeout=5,
    ) as manager:
        yield partial(_drain, manager)


def _drain(manager: Any, requests: Sequence[CoreRequest]) -> list[int]:
    for request in requests:
        manager.add_request(list(request.prompt), request.id, request.sampling.max_tokens, eos_token_id=_NEVER)
    counts: dict[str, int] = {}
    while len(counts) < len(requests):
        result = manager.get_result(timeout=_PATIENCE)
        if result is not None and result.is_finished():
            if result.error:
                raise DrainFailedError(f"{name()}: job {result.request_id}: {result.error}")
            counts[result.request_id] = len(result.generated_tokens)
        elif not manager.is_running():
            raise DrainFailedError(f"{name()}: its thread ended")
    return [counts[request.id] for request in requests]


def _sizes(options: EngineOptions) -> ContinuousBatchingConfig:
    """The defaults except for what the options set. On a CPU, the default pool would take all of the memory."""
    on_cpu = resolve_device(options.device).type == "cpu"
    settings = ContinuousBatchingConfig(
        allow_block_sharing=options.prefix_cache,
        max_batch_tokens=options.token_budget or (_CPU_BUDGET if on_cpu else None),
        max_requests_per_batch=options.max_rows,
    )
    tokens = options.kv_tokens or (_CPU_KV_TOKENS if on_cpu else None)
    if tokens is not None:
        settings.num_blocks = -(-tokens // settings.block_size)
    return settings
