"""Qwen3.5 and Qwen3.6 (text): as Qwen3-Next, with an MLP in every layer and projections that are apart."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.engine.models.qwen3_next import Qwen3Next


class Qwen35(Qwen3Next):
    """Qwen3-Next without its experts, dense."""

    model_type: ClassVar[str] = "qwen3_5_text"

    @classmethod
    def read(cls, config: Configuration) -> Self:
        return cls._read(config, (False,) * config.num_hidden_layers)

    def _projection(self, build: ModelBuilder, prefix: str) -> Linear:
        delta = self.delta
        outputs = {"qkv": delta.mixed, "z": delta.heads * delta.values, "b": delta.heads, "a": delta.heads}
        named = {f"{prefix}in_proj_{name}": rows for name, rows in outputs.items()}
        return build.linear(named, build.shape.hidden_size)
