"""Qwen3.5 and Qwen3.6 with mixtures of experts (text): as Qwen3.5, with experts in every layer."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.qwen3_5 import Qwen35


class Qwen35Moe(Qwen35):
    """A Qwen3.5 with Qwen3-Next's experts."""

    model_type: ClassVar[str] = "qwen3_5_moe_text"

    @classmethod
    def read(cls, config: Configuration) -> Self:
        return cls._read(config, (True,) * config.num_hidden_layers)
