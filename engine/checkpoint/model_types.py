"""The `model_type` of the architectures that the engine computes itself, known without torch.

All others that transformers has run through its models, more slowly (`engine.models.fallback`).
"""

from __future__ import annotations

from typing import Final

FAMILIES: Final = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite", "smollm3", "olmo2", "glm", "glm4",
    "cohere", "cohere2", "seed_oss", "qwen3_moe", "mixtral", "glm4_moe", "gpt_oss",
)  # fmt: skip
