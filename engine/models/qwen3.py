"""Qwen3: queries and keys are normalized head by head before they are rotated."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.family import layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUF_QK_NORMS, GGUFNames
from thothy_ai.engine.models.llama import Llama


class Qwen3(Llama):
    """A Llama with these norms, and perhaps with a window in some layers."""

    model_type: ClassVar[str] = "qwen3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("qwen3", {**GGUF_LLAMA_LAYER, **GGUF_QK_NORMS})

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        bias = config.attention_bias
        return cls(windows=layer_windows(config), qkv_bias=bias, output_bias=bias, qk_norm=True)
