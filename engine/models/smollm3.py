"""SmolLM3: Llama with some layers that have no positions (NoPE, every fourth one), and perhaps a window in these."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.family import layer_windows, require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.llama import Llama


class SmolLM3(Llama):
    """A Llama without rotary positions in some layers."""

    model_type: ClassVar[str] = "smollm3"
    # A GGUF file does not say that every fourth layer has no positions, which is transformers' default.
    gguf: ClassVar[GGUFNames | None] = GGUFNames("smollm3", GGUF_LLAMA_LAYER, interleaved=True)

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        rotates = tuple(bool(each) for each in config.no_rope_layers)
        if len(rotates) < config.num_hidden_layers:
            raise UnsupportedModelError(f"no_rope_layers names {len(rotates)} layers of {config.num_hidden_layers}")
        windows = layer_windows(config)
        if windows != same_window(config) and not config.use_sliding_window:
            raise ModelLoadError("layer_types names layers with a sliding window, and use_sliding_window is false")
        return cls(
            windows=windows,
            qkv_bias=config.attention_bias,
            output_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
            rotates=rotates,
        )
