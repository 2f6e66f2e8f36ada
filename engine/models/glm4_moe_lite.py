"""GLM-4.7-Flash: as DeepSeek-V3, in other sizes, and the configuration says which layers have experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.deepseek_v3 import DeepseekV3


@dataclass(frozen=True, slots=True)
class Glm4MoeLite(DeepseekV3):
    model_type: ClassVar[str] = "glm4_moe_lite"

    @classmethod
    def read(cls, config: Configuration) -> Self:
        kinds = config.mlp_layer_types
        if len(kinds) != config.num_hidden_layers or not {*kinds} <= {"dense", "sparse"}:
            raise ModelLoadError(f"mlp_layer_types is {kinds!r}, of {config.num_hidden_layers} layers")
        return cls.with_sigmoids(config, tuple(kind == "dense" for kind in kinds))
