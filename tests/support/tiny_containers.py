"""Small random multimodal models whose text part is one of our families, as folders saved by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

_VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "head_dim": 16, "num_channels": 3,
}  # fmt: skip
_TEXT: dict[str, Any] = {
    "vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "initializer_range": 0.15,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
CONTAINERS: dict[str, dict[str, Any]] = {  # with the text families that they come with
    "mistral3": {"text": "mistral", "vision": "pixtral", "spatial_merge_size": 1},
    "gemma3": {"text": "gemma3_text", "vision": "siglip_vision_model", "mm_tokens_per_image": 4},
    "llava": {"text": "llama", "vision": "clip_vision_model"},
    "llava_next": {"text": "mistral", "vision": "clip_vision_model"},
    "llava_onevision": {"text": "qwen2", "vision": "siglip_vision_model"},
    "vipllava": {"text": "llama", "vision": "clip_vision_model", "vision_feature_layers": [0]},
    "internvl": {"text": "qwen3", "vision": "internvl_vision"},
    "aya_vision": {"text": "cohere2", "vision": "siglip_vision_model"},
    "idefics3": {"text": "llama", "vision": "idefics3_vision"},
    "smolvlm": {"text": "llama", "vision": "smolvlm_vision"},
}


def tiny_container(name: str, tmp_path: Path, *, tied: bool = False) -> Path:
    """Save a random float32 model of this architecture under `tmp_path`, and return its folder."""
    own = dict(CONTAINERS[name])
    text, vision = own.pop("text"), own.pop("vision")
    config = AutoConfig.for_model(
        name,
        text_config={"model_type": text, **_TEXT, "tie_word_embeddings": tied},
        vision_config={"model_type": vision, **_VISION},
        tie_word_embeddings=tied,
        **own,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    folder = tmp_path / name
    model.eval().save_pretrained(folder)
    return folder


def reference_container(folder: Path) -> PreTrainedModel:
    """What transformers makes of the folder."""
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
