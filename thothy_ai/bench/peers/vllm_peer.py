"""vLLM with its defaults, except for what the options set.

Written from vLLM's documentation and never run, because vLLM was not available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vllm

from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions

_BLOCK = 16  # tokens; vLLM's default


def name() -> str:
    return f"vLLM {vllm.__version__}"


@contextmanager
def resident(
    folder: Path, options: EngineOptions, *, real_weights: bool
) -> Iterator[Callable[[Sequence[CoreRequest]], list[int]]]:
    """vLLM's `LLM` with the folder's model, compiled and captured, until the context ends."""
    llm = vllm.LLM(model=str(folder), **_settings(options, real_weights=real_weights))

    def drain(requests: Sequence[CoreRequest]) -> list[int]:
        """The number of output tokens of each request; `generate` keeps the order of the prompts."""
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        sampling = [
            vllm.SamplingParams(
                temperature=0.0, max_tokens=request.sampling.max_tokens, ignore_eos=True, detokenize=False
            )
            for request in requests
        ]
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        return [len(output.outputs[0].token_ids) for output in outputs]

    yield drain


def _settings(options: EngineOptions, *, real_weights: bool) -> dict[str, Any]:
    """Arguments of `LLM`; for options that are None, vLLM's defaults apply."""
    settings: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "load_format": "auto" if real_weights else "dummy",
        "dtype": options.dtype if options.dtype != "auto" else "bfloat16",
        "kv_cache_dtype": options.kv_dtype,
        "gpu_memory_utilization": options.memory_utilization,
        "enable_prefix_caching": options.prefix_cache,
    }
    block = options.block_size or _BLOCK
    wanted = {
        "quantization": "fp8" if options.weights == "fp8" else None,
        "block_size": options.block_size,
        "num_gpu_blocks_override": options.kv_tokens and -(-options.kv_tokens // block),
        "max_num_seqs": options.max_rows,
        "max_num_batched_tokens": options.token_budget,
    }
    return settings | {name: value for name, value in wanted.items() if value is not None}
