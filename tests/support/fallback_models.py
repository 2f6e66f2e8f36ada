"""Small random models of architectures that have no family here, as Hugging Face folders saved by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, random_prompts

_SHAPE: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,  # a tied head would repeat the prompt's last token
}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ROUTED = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
LONG = {  # of Phi-3.5-MoE
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.5] * 4, "long_factor": [4.0] * 4,
    "short_mscale": 1.2, "long_mscale": 1.3, "original_max_position_embeddings": 128,
}  # fmt: skip
_OF: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 48, "n_head": 6, "n_layer": 3, "n_positions": 256},
    "phi": {"initializer_range": 0.3},
    "opt": {"ffn_dim": 80, "word_embed_proj_dim": 48},
    "olmoe": _EXPERTS,
    "granitemoe": _EXPERTS,
    "ernie4_5_moe": _EXPERTS | {"moe_num_experts": 4, "moe_k": 2, "initializer_range": 0.3},
    "dots1": _EXPERTS | _ROUTED,
    "minicpm3": {  # latent attention, with expanded heads
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 12,
        "num_key_value_heads": 6,
        "dim_model_base": 24,
    },
    "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "ernie4_5": {"head_dim": 8},
    "exaone4": {"sliding_window": 12, "sliding_window_pattern": 2},
    "phimoe": _EXPERTS | {"rope_parameters": LONG},
    "bloom": {"n_layer": 3, "n_head": 6, "seq_length": 256},
    "mpt": {"d_model": 48, "n_heads": 6, "n_layers": 3, "max_seq_len": 256},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "starcoder2": {"sliding_window": 40, "initializer_range": 0.5},
}  # fmt: skip


def fallback_config(kind: str, **overrides: Any) -> PreTrainedConfig:
    """A small configuration of architecture `kind`."""
    return AutoConfig.for_model(kind, **(_SHAPE | _OF.get(kind, {}) | overrides))


def fallback_model(kind: str, tmp_path: Path, **overrides: Any) -> Path:
    """Save a random float32 model of architecture `kind` under `tmp_path` and return its folder."""
    config = fallback_config(kind, **overrides)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():  # transformers starts these at constants, which hides mistakes
            if "norm" in name or "ln_" in name or name.endswith("bias"):
                torch.nn.init.normal_(parameter, mean=float(not name.endswith("bias")), std=0.2)
    folder = tmp_path / kind
    model.eval().save_pretrained(folder)
    return folder


def fallback_oracle(kind: str, folder: Path, device: torch.device, *, new_tokens: int = NEW_TOKENS) -> Oracle:
    """The oracle of a small random model of this architecture."""
    model = fallback_model(kind, folder)
    loaded = load_model(model, device=device, dtype=torch.float32, cache_dir=None)
    prompts = random_prompts(loaded.config.vocab_size)
    return Oracle(loaded, prompts, generate(model, prompts, new_tokens, device))
