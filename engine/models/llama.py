"""Llama 1 to 3, and all that took its architecture (SmolLM2, TinyLlama, Yi)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.models.family import Family, Traits

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def _traits(config: PreTrainedConfig) -> Traits:
    return Traits(
        qkv_bias=config.attention_bias,
        output_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
    )


FAMILY = Family("llama", _traits)
