"""Mistral: no biases. Early models attend to a sliding window in every layer."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.family import require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.llama import Llama


class Mistral(Llama):
    """A Llama without biases, and perhaps with one window for all layers."""

    model_type: ClassVar[str] = "mistral"
    gguf: ClassVar[GGUFNames | None] = GGUFNames("llama", GGUF_LLAMA_LAYER, interleaved=True)

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        return cls(windows=same_window(config, config.sliding_window))
