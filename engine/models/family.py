"""What one decoder family differs in from another. All of them are pre-norm transformers with RoPE and SwiGLU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class Traits:
    """Where biases and norms stand, and the attention window in tokens (None: the whole context)."""

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its `model_type` of transformers; `traits` reads what its configuration leaves open."""

    model_type: str
    traits: Callable[[PreTrainedConfig], Traits]


def layer_window(config: PreTrainedConfig) -> int | None:
    """The window of a configuration that names each layer's attention: None unless some layer has one."""
    window: int | None = config.sliding_window
    return window if "sliding_attention" in config.layer_types else None
