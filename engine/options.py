"""What a person sets to start an engine process; `auto` values are resolved against the device at start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`model` is a Hugging Face folder or a GGUF file; None is allowed with `null`, an engine that answers at once.

    `device`: "auto", "cpu", "cuda", "cuda:1". `dtype`: "auto" (bfloat16 on a GPU, float32 on a CPU) or a torch name.
    `kv_tokens` sizes the KV pool exactly; None takes what `memory_utilization` of a GPU leaves, or a default on a CPU.
    `block_size`, `max_rows`, `token_budget`, `overlap`, `graphs` None: chosen for the device. `threads` None: torch's
    own choice. `weights`, `kv_dtype`: "auto" (as `dtype`) or "fp8". `stall_seconds`: an engine that has requests and
    ends no step for so long is taken for broken.
    """

    url: str
    model: Path | None = None
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "auto"
    kv_dtype: str = "auto"
    block_size: int | None = None
    kv_tokens: int | None = None
    memory_utilization: float = 0.9
    max_rows: int | None = None
    token_budget: int | None = None
    max_context: int | None = None
    prefix_cache: bool = True
    overlap: bool | None = None
    graphs: bool | None = None
    cache_dir: Path | None = None
    threads: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    drain_seconds: float = 30.0
    stall_seconds: float = 300.0
    null: bool = False
    null_latency: float = 0.0
