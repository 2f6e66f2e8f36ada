"""Qwen2 and Qwen2.5: query, key and value projections have a bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.models.family import Family, Traits, layer_window

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def _traits(config: PreTrainedConfig) -> Traits:
    return Traits(qkv_bias=True, window=layer_window(config))


FAMILY = Family("qwen2", _traits)
