"""Named shapes of models, as in their config.json. Speed depends on the shapes, not on the values of the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ALL = {"tie_word_embeddings": False, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
_LLAMA = {**_ALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "eos_token_id": 2}
_QWEN35 = {  # three gated delta net layers to each layer of gated attention
    **_ALL,
    "head_dim": 256,
    "num_attention_heads": 16,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "vocab_size": 248_320,
    "rms_norm_eps": 1e-6,
}
_GEMMA4 = {  # five layers with a window to each global layer, which has larger heads with keys as values
    **_ALL,
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 1024,
    "final_logit_softcapping": 30.0,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "vocab_size": 262_144,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
}
_LATENT = {  # latent attention, one layer with an MLP, then layers with routed and shared experts
    **_ALL,
    "hidden_size": 2048,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 64,
    "n_group": 1,
    "topk_group": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": {
        **_LLAMA,
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
    },
    "qwen3-0.6b": {
        **_ALL,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
    },
    "qwen3-30b-a3b": {  # a mixture of experts with 30 billion parameters, of which each token uses 3 billion
        **_ALL,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151_936,
        "rms_norm_eps": 1e-6,
    },
    "qwen3.5-35b-a3b": {
        **_QWEN35,
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "num_hidden_layers": 40,
        "hidden_size": 2048,
        "num_key_value_heads": 2,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
    },
    "qwen3.5-4b": {
        **_QWEN35,
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 32,
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
    "mixtral-8x7b": {
        **_ALL,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "eos_token_id": 2,
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 32_000,
    },
    "gemma-3-27b": {  # five layers with a window to each global layer
        **_ALL,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "query_pre_attn_scalar": 168,
        "sliding_window": 1024,
        "vocab_size": 262_208,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
    },
    "gemma-4-31b": {
        **_GEMMA4,
        "num_hidden_layers": 60,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
    },
    "gemma-4-26b-a4b": {  # experts and an MLP in every layer
        **_GEMMA4,
        "num_hidden_layers": 30,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "enable_moe_block": True,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
    },
    "glm-4.7-flash": {
        **_LATENT,
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "model_type": "glm4_moe_lite",
        "num_hidden_layers": 47,
        "intermediate_size": 10_240,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1536,
        "routed_scaling_factor": 1.8,
        "vocab_size": 154_880,
    },
    "deepseek-v2-lite": {
        **_LATENT,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_hidden_layers": 27,
        "first_k_dense_replace": 1,
        "intermediate_size": 10_944,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408,
        "vocab_size": 102_400,
        "rms_norm_eps": 1e-6,
    },
    "gpt-oss-20b": {  # a window in every other layer; the experts' weights are not packed here
        **_ALL,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 24,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "vocab_size": 201_088,
        "rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0},
    },
    "smollm2-135m": {
        **_LLAMA,
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49_152,
        "tie_word_embeddings": True,
    },
    "tiny": {  # for tests, and for trying the benchmark on a CPU
        **_LLAMA,
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
    },
}
ON_A_CPU = "smollm2-135m"
ON_A_GPU = ("llama-8b", "qwen3-0.6b", "smollm2-135m")  # the first one that fits


def parameters(shape: str) -> int:
    """The number of parameters; a tied head adds none."""
    config = SHAPES[shape]
    if config["model_type"] == "gemma4_text":
        return _gemma4(config)
    if "kv_lora_rank" in config:
        return _latent(config)
    hidden, heads, kv_heads = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    attention = 2 * hidden * (heads + kv_heads) * config["head_dim"]
    family = config["model_type"]
    head_norms = 2 * config["head_dim"] if family.startswith(("qwen3", "gemma3")) else 0
    layers, interval = config["num_hidden_layers"], config.get("full_attention_interval", 1)
    gates, recurrent = (heads * config["head_dim"] * hidden, _delta_net(config)) if interval > 1 else (0, 0)
    mixers = layers // interval * (attention + gates + head_norms) + (layers - layers // interval) * recurrent
    experts = config.get("num_experts", config.get("num_local_experts"))
    if experts is None:
        feed_forward = 3 * hidden * config["intermediate_size"]
    else:  # experts and their router
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        shared = config.get("shared_expert_intermediate_size")
        feed_forward = (experts * (3 * inner + 1) + (3 * shared + 1 if shared else 0)) * hidden
    if family == "gpt_oss":  # biases and attention sinks
        feed_forward += experts * (2 * inner + hidden + 1)
        mixers += layers * ((heads + 2 * kv_heads) * config["head_dim"] + hidden + heads)
    tables = 1 if config["tie_word_embeddings"] else 2
    norms = 4 if family.startswith("gemma3") else 2
    return int(mixers + layers * (feed_forward + norms * hidden) + tables * config["vocab_size"] * hidden + hidden)


def _delta_net(config: dict[str, Any]) -> int:
    heads, values = config["linear_num_value_heads"], config["linear_value_head_dim"]
    mixed = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + heads * values
    projections = mixed + 2 * heads * values + 2 * heads
    return int(config["hidden_size"] * projections + mixed * config["linear_conv_kernel_dim"] + 2 * heads + values)


def _latent(config: dict[str, Any]) -> int:
    """The parameters of a latent-attention model. The first layer has an MLP; GLM corrects the choice of experts."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    turned, plain, values = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    queries = config["q_lora_rank"]
    mixer = hidden * (rank + turned + heads * values) + rank * (1 + heads * (plain + values))
    mixer += queries * (hidden + 1) if queries else 0
    mixer += (queries or hidden) * heads * (plain + turned)
    count, layers = config["n_routed_experts"], config["num_hidden_layers"]
    experts = 3 * hidden * config["moe_intermediate_size"] * (count + config["n_shared_experts"]) + count * hidden
    experts += count if config["model_type"] == "glm4_moe_lite" else 0
    tables = 2 * config["vocab_size"] * hidden + hidden
    return int(
        layers * (mixer + 2 * hidden) + 3 * hidden * config["intermediate_size"] + (layers - 1) * experts + tables
    )


def _gemma4(config: dict[str, Any]) -> int:
    """The parameters of a Gemma 4 model. In every sixth layer, the keys are also the values."""
    hidden, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    size, full_size = config["head_dim"], config["global_head_dim"]
    windowed = 2 * hidden * (heads + config["num_key_value_heads"]) * size + 2 * size
    full = hidden * (2 * heads + config["num_global_key_value_heads"]) * full_size + 2 * full_size
    feed_forward, norms = 3 * hidden * config["intermediate_size"], 4
    if experts := config.get("num_experts"):  # with a router that has scales
        feed_forward += experts * (3 * hidden * config["moe_intermediate_size"] + hidden + 1) + hidden
        norms = 7
    per_layer = feed_forward + norms * hidden + 1
    mixers = layers // 6 * (5 * windowed + full)
    return int(mixers + layers * per_layer + (config["vocab_size"] + 1) * hidden)


def described(shape: str) -> str:
    """The number of parameters, and the size of the weights on a GPU and on a CPU."""
    count = parameters(shape)
    number = (
        f"{count / 1e9:.3g} billion" if count >= 1e9 else f"{count / 1e6:.3g} million" if count >= 1e6 else f"{count:,}"
    )
    return f"{number} parameters: {_size(2 * count)} in bfloat16, {_size(4 * count)} in float32"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e6:.0f} MB"


def write_config(shape: str, folder: Path, **changes: object) -> Path:
    """Write the shape's config.json, with these values changed, to `folder`, and return `folder`."""
    (folder / "config.json").write_text(json.dumps(SHAPES[shape] | changes), encoding="utf-8")
    return folder
