"""Decoder families: one module each, composed of the parts in `layers`."""

from __future__ import annotations

from thothy_ai.engine.checkpoint import configuration
from thothy_ai.engine.models.cohere import Cohere
from thothy_ai.engine.models.cohere2 import Cohere2
from thothy_ai.engine.models.deepseek_v2 import DeepseekV2
from thothy_ai.engine.models.deepseek_v3 import DeepseekV3
from thothy_ai.engine.models.falcon_h1 import FalconH1
from thothy_ai.engine.models.family import Family
from thothy_ai.engine.models.gemma2 import Gemma2
from thothy_ai.engine.models.gemma3 import Gemma3
from thothy_ai.engine.models.gemma4 import Gemma4
from thothy_ai.engine.models.glm import Glm
from thothy_ai.engine.models.glm4 import Glm4
from thothy_ai.engine.models.glm4_moe import Glm4Moe
from thothy_ai.engine.models.glm4_moe_lite import Glm4MoeLite
from thothy_ai.engine.models.gpt_oss import GptOss
from thothy_ai.engine.models.granite import Granite
from thothy_ai.engine.models.granite_hybrid import GraniteHybrid
from thothy_ai.engine.models.lfm2 import Lfm2
from thothy_ai.engine.models.llama import Llama
from thothy_ai.engine.models.llama4 import Llama4
from thothy_ai.engine.models.ministral3 import Ministral3
from thothy_ai.engine.models.mistral import Mistral
from thothy_ai.engine.models.mixtral import Mixtral
from thothy_ai.engine.models.nemotron_h import NemotronH
from thothy_ai.engine.models.olmo2 import Olmo2
from thothy_ai.engine.models.olmo3 import Olmo3
from thothy_ai.engine.models.phi3 import Phi3
from thothy_ai.engine.models.qwen2 import Qwen2
from thothy_ai.engine.models.qwen3 import Qwen3
from thothy_ai.engine.models.qwen3_5 import Qwen35
from thothy_ai.engine.models.qwen3_5_moe import Qwen35Moe
from thothy_ai.engine.models.qwen3_moe import Qwen3Moe
from thothy_ai.engine.models.qwen3_next import Qwen3Next
from thothy_ai.engine.models.seed_oss import SeedOss
from thothy_ai.engine.models.smollm3 import SmolLM3

_FAMILIES: tuple[type[Family], ...] = (
    Llama, Mistral, Qwen2, Qwen3, Gemma2, Gemma3, Phi3, Granite, SmolLM3, Olmo2, Glm, Glm4, Cohere, Cohere2, SeedOss,
    Qwen3Moe, Mixtral, Glm4Moe, GptOss, Qwen3Next, Qwen35, Qwen35Moe, GraniteHybrid,
    Lfm2, Olmo3, Ministral3, Gemma4, FalconH1, NemotronH, Llama4, DeepseekV2, DeepseekV3, Glm4MoeLite,
)  # fmt: skip
FAMILIES: dict[str, type[Family]] = {family.model_type: family for family in _FAMILIES}
if tuple(FAMILIES) != configuration.FAMILIES:
    raise ImportError("engine/checkpoint/configuration.py has other families than engine/models, or another order")
