"""Command R7B and Command A: as Command R, with a window in most layers; the others see all and have no positions."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.cohere import Cohere
from thothy_ai.engine.models.family import layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUF_ATTENTION, GGUF_GATED_MLP, GGUFNames


class Cohere2(Cohere):
    """A Command R in which only layers with a window have rotary positions."""

    model_type: ClassVar[str] = "cohere2"
    # Unless a file says otherwise, every fourth layer has no window, which is transformers' default.
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "cohere2",
        {"attn_norm": "input_layernorm", **GGUF_ATTENTION, **GGUF_GATED_MLP},
        optional_bias=False,
        windows_in_some=True,
        settings={"logit_scale": ".logit_scale", "sliding_window": ".attention.sliding_window"},
        norm_eps=("layer_norm_eps", ".attention.layer_norm_epsilon"),
    )

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        windows = layer_windows(config)
        return cls(
            windows=windows,
            rotates=tuple(window is not None for window in windows),
            attention_bias=config.attention_bias,
            head_norms=False,
            logit_scale=config.logit_scale,
        )
