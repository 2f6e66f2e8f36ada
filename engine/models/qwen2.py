"""Qwen2 and Qwen2.5: query, key and value projections have a bias."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.family import layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.llama import Llama


class Qwen2(Llama):
    """A Llama with these biases, and perhaps with a window in some layers."""

    model_type: ClassVar[str] = "qwen2"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("qwen2", GGUF_LLAMA_LAYER, optional_bias=False)

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(windows=layer_windows(config), qkv_bias=True)
