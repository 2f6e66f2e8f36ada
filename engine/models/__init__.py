"""Decoder families: one module each, composed of the parts in `layers`."""

from __future__ import annotations

from thothy_ai.engine.models.family import Family
from thothy_ai.engine.models.gemma2 import Gemma2
from thothy_ai.engine.models.glm4_moe import Glm4Moe
from thothy_ai.engine.models.llama import Llama
from thothy_ai.engine.models.mistral import Mistral
from thothy_ai.engine.models.mixtral import Mixtral
from thothy_ai.engine.models.qwen2 import Qwen2
from thothy_ai.engine.models.qwen3 import Qwen3
from thothy_ai.engine.models.qwen3_moe import Qwen3Moe

_FAMILIES: tuple[type[Family], ...] = (Llama, Mistral, Qwen2, Qwen3, Gemma2, Qwen3Moe, Mixtral, Glm4Moe)
FAMILIES: dict[str, type[Family]] = {family.model_type: family for family in _FAMILIES}
