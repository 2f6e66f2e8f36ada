"""Ministral 3: as Mistral, with queries that grow with their position beyond the pretrained context (as in Llama 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.family import require_activation, require_full_rotary, same_window
from thothy_ai.engine.models.gguf_names import GGUF_LLAMA_LAYER, GGUFNames
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.llama import Llama


def _rope_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a GGUF file has beside its rotary embedding: how much queries grow, and how attention is sharpened."""
    rope, sharpened = {"llama_4_scaling_beta": fields["temperature_scale"]}, fields["yarn_log_multiplier"]
    if sharpened:
        rope |= {"mscale": sharpened, "mscale_all_dim": sharpened}
    return {"rope_parameters": fields["rope_parameters"] | rope}


@dataclass(frozen=True, slots=True)
class Ministral3(Llama):
    """Queries are multiplied by 1 + `beta` * log(1 + position // `original_context`)."""

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

    beta: float = 0.0
    original_context: int = 1

    @classmethod
    def read(cls, config: Configuration) -> Self:
        require_activation(config.hidden_act, "silu")
        require_full_rotary(config)
        rope = config.rope_parameters
        return cls(
            windows=same_window(config, config.sliding_window),
            beta=rope.get("llama_4_scaling_beta") or 0.0,
            original_context=rope.get("original_max_position_embeddings") or config.max_position_embeddings,
        )

    def layer(self, build: ModelBuilder, prefix: str, index: int) -> PreNormLayer:
        layer, context = Llama.layer(self, build, prefix, index), build.shape.max_context
        if not self.beta or context <= self.original_context:
            return layer
        steps = torch.arange(context, dtype=torch.float32).div(self.original_context).floor()
        scales = build.held((1 + self.beta * (1 + steps).log()).to(build.embedding.device))
        return replace(layer, attention=replace(layer.attention, query_scales=scales))  # type: ignore[type-var]
