"""Small random models of every family, as Hugging Face folders saved by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

RECURRENT = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "lfm2", "falcon_h1", "nemotron_h")
SPARSE = ("qwen3_moe", "mixtral", "glm4_moe", "gpt_oss")  # mixtures of experts
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite", "smollm3", "olmo2", "glm", "glm4",
    "cohere", "cohere2", "seed_oss", *SPARSE, *RECURRENT, "olmo3", "ministral3", "gemma4_text",
    "llama4_text", *LATENT,
)  # fmt: skip
_ONE_PLUS = ("gemma2", "gemma3_text", *RECURRENT[:3])  # whose norms multiply by 1 + w

GEMMA4_SMALL: dict[str, Any] = {  # a layer of each type keeps keys and values, the others read them
    "num_hidden_layers": 5,
    "layer_types": ["sliding_attention", "full_attention", *["sliding_attention"] * 2, "full_attention"],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 20,
    "vocab_size_per_layer_input": 131,
    "attention_k_eq_v": False,
}
GEMMA4_EXPERTS: dict[str, Any] = {
    "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 24,
}  # fmt: skip

_SHAPE: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,  # wide enough that greedy choices are clear-cut
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_DELTA = {  # attention between two delta nets, whose key heads are shared by three heads and whose sizes all differ
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": False,
}
_SHARED = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 24,
}  # fmt: skip
_GROUPED_EXPERTS = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 16,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_LATENT: dict[str, Any] = {  # sizes that all differ, the first layer without experts, groups, and two shared experts
    "num_key_value_heads": 6,
    "head_dim": 6,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 10,
    "v_head_dim": 14,
    "q_lora_rank": 28,
    **_GROUPED_EXPERTS,
    "tie_word_embeddings": False,
}
_LATENT_YARN = {  # of which one factor sharpens cosines and another one scores
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "mscale": 0.8,
    "mscale_all_dim": 1.1,
}
_OF_FAMILY: dict[str, dict[str, Any]] = {
    "gemma2": {  # caps and a window that are felt, and no tied head, which would repeat the prompt's last token
        "tie_word_embeddings": False,
        "sliding_window": 12,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
    },
    "gemma3_text": {  # a window that is felt, and rotary frequencies that differ
        "tie_word_embeddings": False,
        "sliding_window": 12,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "phi3": {"sliding_window": 30, "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.75}},
    "granite": {
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 3.0,
    },
    "smollm3": {
        "tie_word_embeddings": False,
        "no_rope_layers": [1, 0, 1],
        "use_sliding_window": True,
        "sliding_window": 12,
    },
    "cohere": {"tie_word_embeddings": False, "logit_scale": 0.7, "use_qk_norm": True},
    "cohere2": {
        "tie_word_embeddings": False,
        "logit_scale": 0.7,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "qwen3_moe": {  # one layer without experts
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
    },
    "mixtral": {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None},
    "glm4_moe": {  # the first layer has no experts; groups and a shared expert
        **_GROUPED_EXPERTS,
        "use_qk_norm": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "tie_word_embeddings": False,
    },
    "qwen3_next": _DELTA | _SHARED | {"mlp_only_layers": [1]},
    "qwen3_5_text": _DELTA,
    "granitemoehybrid": {  # attention without positions between two state spaces
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "mamba_n_heads": 6,
        "mamba_d_head": 16,
        "mamba_n_groups": 2,
        "mamba_d_state": 8,
        "mamba_d_conv": 3,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "shared_intermediate_size": 40,
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.2,
        "logits_scaling": 3.0,
        "tie_word_embeddings": False,
    },
    "falcon_h1": {
        "num_hidden_layers": 2,
        "mamba_d_ssm": 60,
        "mamba_n_heads": 6,
        "mamba_d_head": 10,
        "mamba_n_groups": 2,
        "mamba_d_state": 8,
        "mamba_d_conv": 3,
        "embedding_multiplier": 5.0,
        "lm_head_multiplier": 0.7,
        "mlp_multipliers": [0.8, 0.6],
        "key_multiplier": 0.9,
        "attention_in_multiplier": 1.3,
        "attention_out_multiplier": 0.7,
        "ssm_multipliers": [0.9, 1.2, 0.8, 1.1, 0.7],
        "ssm_in_multiplier": 1.4,
        "ssm_out_multiplier": 0.5,
    },
    "nemotron_h": {  # a state space before experts, attention before two MLPs, and a state space alone
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "mlp", "linear_attention"],
        "mamba_num_heads": 6,
        "mamba_head_dim": 10,
        "n_groups": 2,
        "ssm_state_size": 8,
        "conv_kernel": 3,
        "time_step_min": 1e-9,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 24,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 1.5,
    },
    "lfm2": {
        "layer_types": ["conv", "full_attention", "conv"],
        "block_multiple_of": 20,
        "block_ffn_dim_multiplier": 1.2,
        "tie_word_embeddings": False,
    },
    "qwen3_5_moe_text": _DELTA | _SHARED | {"shared_expert_intermediate_size": 32},  # of the other experts' size
    "ministral3": {  # queries that grow within the tests' texts
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16,
            "llama_4_scaling_beta": 0.4,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "llama4_text": {  # chunks, growing queries and a stretch that are felt; the first layer has no experts
        "tie_word_embeddings": False,
        "no_rope_layers": [1, 0, 1],
        "attention_chunk_size": 18,
        "floor_scale": 8,
        "attn_scale": 0.4,
        "moe_layers": [1, 2],
        "num_local_experts": 5,
        "num_experts_per_tok": 1,
        "intermediate_size": 32,
        "intermediate_size_mlp": 80,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "olmo3": {  # a window that is felt, and rotary frequencies that are stretched in the other layer
        "tie_word_embeddings": False,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "gemma4_text": {  # larger heads in layers without a window, whose values are their keys
        "tie_word_embeddings": False,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "global_head_dim": 24,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 5.0,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    },
    "deepseek_v2": _LATENT
    | {  # no latent of queries; groups by their best expert
        "q_lora_rank": None,
        "topk_method": "group_limited_greedy",
        "rope_parameters": _LATENT_YARN,
    },
    "deepseek_v3": _LATENT | {"rope_parameters": _LATENT_YARN, "num_nextn_predict_layers": 1},
    "glm4_moe_lite": _LATENT | {"mlp_layer_types": ["dense", "sparse", "sparse"], "rope_interleave": True},
    "gpt_oss": {  # a window that is felt; yarn whose range of corrections is not rounded
        "tie_word_embeddings": False,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "sliding_window": 12,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "beta_fast": 8.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
    },
}


def tiny_model(family: str, tmp_path: Path, **overrides: Any) -> Path:
    """Save a random float32 model of `family` under `tmp_path` and return its folder.

    `overrides` are fields of the family's configuration, `max_shard_size` (to save in shards) and `seed`.
    """
    shard_size = overrides.pop("max_shard_size", "1GB")
    seed = overrides.pop("seed", 0)
    config = AutoConfig.for_model(family, **(_SHAPE | _OF_FAMILY.get(family, {}) | overrides))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():  # transformers starts these at constants, which hides mistakes
            if "norm" in name or name.endswith("bias"):
                mean = float("norm" in name and family not in _ONE_PLUS)
                torch.nn.init.normal_(parameter, mean=mean, std=0.3)
            if family == "gemma4_text" and name.endswith("q_norm.weight"):  # scores have no other scale
                parameter.data.mul_(0.25)
            if name.endswith(("router.scale", "per_expert_scale")):
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            if name.endswith("sinks"):
                torch.nn.init.normal_(parameter, std=2.0)
        for name, buffer in model.named_buffers():
            if name.endswith("correction_bias"):
                torch.nn.init.normal_(buffer, std=0.3)
            if name.endswith("layer_scalar"):
                torch.nn.init.uniform_(buffer, 0.5, 1.5)
    folder = tmp_path / family
    model.eval().save_pretrained(folder, max_shard_size=shard_size)
    return folder


def reference_model(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """What transformers makes of the folder, in evaluation mode.

    Attention is transformers' own: in torch's, which it would prefer, there is no soft cap.
    """
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
