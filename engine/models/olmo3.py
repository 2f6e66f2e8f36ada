"""OLMo 3: as OLMo 2, with a window in most layers, whose positions are not stretched where the others' are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.family import layer_windows, require_activation, require_full_rotary
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.layers.blocks import PostNormLayer
from thothy_ai.engine.models.olmo2 import GGUF_OLMO2_LAYER, Olmo2
from thothy_ai.kernels.paged import AttentionParams


def _derived(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a GGUF file lacks: as in llama.cpp, layers with a window do not stretch positions."""
    local = {"rope_type": "default", "rope_theta": fields["rope_parameters"]["rope_theta"]}
    return {"rope_parameters": {"full_attention": fields["rope_parameters"], "sliding_attention": local}}


class Olmo3(Olmo2):
    """An OLMo 2 with these windows, and with rotary frequencies of their own."""

    model_type: ClassVar[str] = "olmo3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "olmo2",
        GGUF_OLMO2_LAYER,
        windows_in_some=True,
        settings={"sliding_window": ".attention.sliding_window"},
        derived=_derived,
    )

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        for rope in config.rope_parameters.values():
            require_full_rotary(config, rope)
        return cls(windows=layer_windows(config), attention_bias=config.attention_bias)

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PostNormLayer:
        layer, window = Olmo2.layer(self, build, prefix, index), self.windows[index]
        params = AttentionParams(window=window).within(build.shape.max_context)
        rotary = build.rotary if window is None else build.local_rotary
        return replace(layer, attention=replace(layer.attention, params=params, rotary=rotary))
