"""Mistral: Llama without biases; early models attend to a sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.models.family import Family, Traits

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def _traits(config: PreTrainedConfig) -> Traits:
    return Traits(window=config.sliding_window)


FAMILY = Family("mistral", _traits)
