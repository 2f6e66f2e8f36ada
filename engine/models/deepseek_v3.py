"""DeepSeek-V3 and R1: as DeepSeek-V2, with scores by sigmoid, corrected for the choice and chosen within groups.

The checkpoints' further layers, which predict several tokens at a time, are left out, as in transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.deepseek_v2 import DeepseekV2, first_dense, require_said
from thothy_ai.engine.models.gguf_latent import gguf_latent
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.glm4_moe import grouped_routing


@dataclass(frozen=True, slots=True)
class DeepseekV3(DeepseekV2):
    model_type: ClassVar[str] = "deepseek_v3"
    gguf: ClassVar[GGUFNames | None] = gguf_latent(corrected=True)
    corrected: ClassVar[bool] = True

    @classmethod
    def read(cls, config: Configuration) -> Self:
        return cls.with_sigmoids(config, first_dense(config))

    @classmethod
    def with_sigmoids(cls, config: Configuration, dense: tuple[bool, ...]) -> Self:
        require_said(config, "scoring_func", "sigmoid")
        require_said(config, "topk_method", "noaux_tc")
        return cls.with_experts(config, dense, grouped_routing(config), interleaved=config.rope_interleave)
