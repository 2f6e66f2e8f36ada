"""Qwen3: queries and keys are normalized head by head before they are rotated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.models.family import Family, Traits, layer_window

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def _traits(config: PreTrainedConfig) -> Traits:
    return Traits(
        qkv_bias=config.attention_bias,
        output_bias=config.attention_bias,
        qk_norm=True,
        window=layer_window(config),
    )


FAMILY = Family("qwen3", _traits)
