"""`ModelShape`: the sizes of a decoder and the forms of its weights, which its layers are built by."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.models.quantized.quantization import Quantization
from thothy_ai.engine.models.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """`local_rope` is for layers with a sliding window, where they rotate by other frequencies than `rope`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    local_rope: Rope | None = None
    tied_embeddings: bool
    max_context: int
    quantization: Quantization | None = None
