"""Qwen3.5 and Qwen3.6 (text): as Qwen3-Next, with an MLP in every layer and separate projections."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.gguf_delta_net import (
    GGUF_DELTA_APART,
    GGUF_DELTA_DEFAULTS,
    GGUF_DELTA_GATES,
    GGUF_DELTA_NET,
    GGUF_DELTA_SETTINGS,
    GGUF_TILED_CHANGES,
    delta_fields,
)
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_GATED_MLP,
    GGUF_NORMS_AFTER_ATTENTION,
    GGUF_QK_NORMS,
    GGUFNames,
)
from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.engine.models.qwen3_next import Qwen3Next


class Qwen35(Qwen3Next):
    """Qwen3-Next with MLPs instead of experts."""

    model_type: ClassVar[str] = "qwen3_5_text"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "qwen35",
        {**GGUF_DELTA_NET, **GGUF_DELTA_APART, **GGUF_ATTENTION, **GGUF_QK_NORMS, **GGUF_GATED_MLP,
         **GGUF_NORMS_AFTER_ATTENTION},
        whole=GGUF_DELTA_GATES,
        one_plus=True,
        changed=GGUF_TILED_CHANGES,
        unpacked=("ssm_out",),
        partial_rotary=True,
        settings=GGUF_DELTA_SETTINGS,
        defaults=GGUF_DELTA_DEFAULTS,
        needless=(".rope.dimension_sections",),  # for positions in images
        further_layers=".nextn_predict_layers",
        derived=delta_fields,
    )  # fmt: skip

    @classmethod
    def read(cls, config: Configuration) -> Self:
        return cls._read(config, (False,) * config.num_hidden_layers)

    def _projection(self, build: ModelBuilder, prefix: str) -> Linear:
        delta = self.delta
        outputs = {"qkv": delta.mixed, "z": delta.heads * delta.values, "b": delta.heads, "a": delta.heads}
        named = {f"{prefix}in_proj_{name}": rows for name, rows in outputs.items()}
        return build.linear(named, build.shape.hidden_size)
