"""Seed-OSS: Llama with biases on queries, keys and values, and others if the configuration says so."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.family import require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_GATED_MLP, GGUF_NORMS_AFTER_ATTENTION, GGUFNames
from thothy_ai.engine.models.llama import Llama


class SeedOss(Llama):
    """A Llama with a setting of its own for the bias of the output projection."""

    model_type: ClassVar[str] = "seed_oss"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "seed_oss", {**GGUF_NORMS_AFTER_ATTENTION, **GGUF_ATTENTION, **GGUF_GATED_MLP}
    )

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(
            windows=same_window(config),
            qkv_bias=config.attention_bias,
            output_bias=config.attention_out_bias,
            mlp_bias=config.mlp_bias,
        )
