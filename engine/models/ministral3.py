"""Ministral 3: as Mistral, with queries that grow with their position beyond the pretrained context (as in Llama 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

from torch import Tensor

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.family import require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.llama import Llama
from thothy_ai.engine.models.query_growth import NO_GROWTH, QueryGrowth


def _rope_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of a GGUF file other than its rotary embedding: the growth of queries, and the sharpening of attention."""
    rope, sharpened = {"llama_4_scaling_beta": fields["temperature_scale"]}, fields["yarn_log_multiplier"]
    if sharpened:
        rope |= {"mscale": sharpened, "mscale_all_dim": sharpened}
    return {"rope_parameters": fields["rope_parameters"] | rope}


@dataclass(frozen=True, slots=True)
class Ministral3(Llama):
    model_type: ClassVar[str] = "ministral3"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "mistral3",
        GGUF_LLAMA_LAYER,
        interleaved=True,
        optional_bias=False,
        settings={"temperature_scale": ".attention.temperature_scale"},
        defaults={"yarn_log_multiplier": (".rope.scaling.yarn_log_multiplier", 0.0)},
        derived=_rope_fields,
    )

    growth: QueryGrowth = NO_GROWTH

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        rope = config.rope_parameters
        return cls(
            windows=same_window(config, config.sliding_window),
            growth=QueryGrowth(
                rope.get("llama_4_scaling_beta") or 0.0,
                rope.get("original_max_position_embeddings") or config.max_position_embeddings,
            ),
        )

    def build(self, build: ModelBuilder) -> Decoder:
        return build.decoder(partial(self.growing_layer, self.growth.held(build)))

    def growing_layer(self, scales: Tensor | None, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        layer = self.layer(build, prefix, index)
        return replace(layer, attention=replace(layer.attention, query_scales=scales))  # type: ignore[type-var]
