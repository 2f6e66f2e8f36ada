"""Which architectures the engine computes by itself, as their configurations call them: known without torch.

All others that transformers knows run through its models, slower (`engine.models.fallback`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

FAMILIES: Final = frozenset(
    (
        "cohere", "cohere2", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe", "gpt_oss", "granite", "llama",
        "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_moe", "seed_oss", "smollm3",
    )
)  # fmt: skip
CONTAINERS: Final = frozenset(  # multimodal ones, whose text part is of a family
    (
        "aya_vision", "gemma3", "idefics3", "internvl", "llava", "llava_next", "llava_onevision", "mistral3",
        "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "vipllava",
    )
)  # fmt: skip


def is_ours(model: Path) -> bool:
    """Whether a Hugging Face folder's architecture, or a GGUF file's, is one of these. False for what can't be read."""
    if model.is_file():
        return True  # files of other architectures are refused
    try:
        model_type = json.loads((model / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return model_type in FAMILIES | CONTAINERS if isinstance(model_type, str) else False
