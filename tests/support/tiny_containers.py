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
_QWEN_VISION: dict[str, Any] = {  # fields that not all of them have are ignored
    "depth": 1, "hidden_size": 48, "embed_dim": 32, "out_hidden_size": 48, "intermediate_size": 32, "num_heads": 2,
    "patch_size": 14, "num_position_embeddings": 16, "deepstack_visual_indexes": [0], "fullatt_block_indexes": [0],
}  # fmt: skip
_SECTIONS = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 1, 1]}
_QWEN3 = {"rope_parameters": _SECTIONS | {"mrope_section": [4, 2, 2], "mrope_interleaved": True}}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [1]}
_QWEN35 = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
    "rope_parameters": _SECTIONS | {"mrope_interleaved": True, "partial_rotary_factor": 0.5},  # 4 frequencies
}  # fmt: skip
_GEMMA4 = {
    "layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 4,
    "num_kv_shared_layers": 1, "global_head_dim": 24, "hidden_size_per_layer_input": 20,
    "vocab_size_per_layer_input": 131,
}  # fmt: skip
_LLAMA4 = {
    "attention_chunk_size": 4, "no_rope_layers": [1, 0, 1], "moe_layers": [1, 2], "num_local_experts": 5,
    "intermediate_size": 32, "intermediate_size_mlp": 80, "floor_scale": 3, "pad_token_id": 0,
}  # fmt: skip
_LLAMA4_VISION = {
    "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32,
}  # fmt: skip
CONTAINERS: dict[str, dict[str, Any]] = {  # with the text families that they come with
    "mistral3": {"text": "mistral", "vision": "pixtral", "spatial_merge_size": 1},
    "gemma3": {"text": "gemma3_text", "vision": "siglip_vision_model", "mm_tokens_per_image": 4},
    "gemma4": {"text": "gemma4_text", "vision": "gemma4_vision", "text_fields": _GEMMA4},
    "gemma4_unified": {"text": "gemma4_text", "vision_fields": {"mm_embed_dim": 16}, "text_fields": _GEMMA4},
    "llama4": {"text": "llama4_text", "text_fields": _LLAMA4, "vision_fields": _LLAMA4_VISION},
    "llava": {"text": "llama", "vision": "clip_vision_model"},
    "llava_next": {"text": "mistral", "vision": "clip_vision_model"},
    "llava_next_video": {"text": "llama", "vision": "clip_vision_model"},
    "video_llava": {"text": "llama", "vision": "clip_vision_model"},
    "llava_onevision": {"text": "qwen2", "vision": "siglip_vision_model"},
    "vipllava": {"text": "llama", "vision": "clip_vision_model", "vision_feature_layers": [0]},
    "internvl": {"text": "qwen3", "vision": "internvl_vision"},
    "aya_vision": {"text": "cohere2", "vision": "siglip_vision_model"},
    "cohere2_vision": {"text": "cohere2", "vision": "siglip_vision_model"},
    "deepseek_vl": {"text": "llama", "vision": "siglip_vision_model"},
    "exaone4_5": {"text": "exaone4", "vision": "exaone4_5_vision"},
    "idefics2": {"text": "mistral", "vision": "idefics2_vision"},
    "idefics3": {"text": "llama", "vision": "idefics3_vision"},
    "smolvlm": {"text": "llama", "vision": "smolvlm_vision"},
    "qwen2_vl": {"text": "qwen2", "text_fields": {"rope_parameters": _SECTIONS, "head_dim": 8}},
    "qwen2_5_vl": {"text": "qwen2", "text_fields": {"rope_parameters": _SECTIONS, "head_dim": 8}},
    "qwen3_vl": {"text": "qwen3", "text_fields": _QWEN3},
    "qwen3_vl_moe": {"text": "qwen3_moe", "text_fields": _QWEN3 | _EXPERTS},
    "qwen3_5": {"text": "qwen3_5_text", "text_fields": _QWEN35},
    "qwen3_5_moe": {"text": "qwen3_5_moe_text", "text_fields": _QWEN35 | _EXPERTS | {"mlp_only_layers": None}},
}


def tiny_container(name: str, tmp_path: Path, *, tied: bool = False, around: str | None = None, **fields: Any) -> Path:
    """Save a random float32 model of this architecture under `tmp_path`, and return its folder.

    It is `around` a text part of that type, if given. `fields` are more of its text part's.
    """
    own = CONTAINERS[name] | ({} if around is None else {"text": around})
    text, vision, text_fields = own.pop("text"), own.pop("vision", None), own.pop("text_fields", {})
    vision_fields = own.pop("vision_fields", _QWEN_VISION)
    named = {} if vision is None else {"model_type": text}  # Qwen-VL's have a type of their own
    config = AutoConfig.for_model(
        name,
        text_config={**named, **_TEXT, "tie_word_embeddings": tied, **text_fields, **fields},
        vision_config=vision_fields if vision is None else {"model_type": vision, **_VISION},
        tie_word_embeddings=tied,
        **own,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
        for part, parameter in model.named_parameters():  # transformers starts these at constants, which hides mistakes
            if "norm" in part or part.endswith("bias"):
                torch.nn.init.normal_(parameter, mean=float("norm" in part), std=0.3)
    folder = tmp_path / name
    model.eval().save_pretrained(folder)
    return folder


def reference_container(folder: Path) -> PreTrainedModel:
    """What transformers makes of the folder."""
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
