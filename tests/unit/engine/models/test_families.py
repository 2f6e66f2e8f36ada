"""Each family's logits against transformers on small random models: prefill, chunks and decode over a paged cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import FAMILIES, GEMMA4_EXPERTS, GEMMA4_SMALL, RECURRENT, reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_groups import LayerGroups
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.kernels.paged import PLAIN, AttentionParams, KVHeads

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
LONG_PARTIAL = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 4.0, 9.0],
}  # fmt: skip
EVERYWHERE = {"attention_bias": True, "mlp_bias": True}
GEMMA4_ROPE = {
    "full_attention": {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.3, "factor": 4.0},
    "sliding_attention": LINEAR,
}
QWEN_WINDOWS = {"use_sliding_window": True, "sliding_window": 9}
LATER_WINDOWS = ["full_attention", "sliding_attention", "sliding_attention"]
ALL_TURNS = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
HEADS_5_1 = {"num_attention_heads": 5, "num_key_value_heads": 1, "hidden_size": 70, "head_dim": 14}
HEADS_3_1 = {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 66, "head_dim": 22}

GRANITE_4_MICRO: dict[str, Any] = {
    "model_type": "granitemoehybrid", "hidden_size": 2560, "intermediate_size": 8192, "shared_intermediate_size": 8192,
    "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 100352,
    "layer_types": ["attention"] * 40, "num_local_experts": 0, "num_experts_per_tok": 0, "tie_word_embeddings": True,
    "position_embedding_type": "rope", "rope_theta": 10000000, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
    "attention_multiplier": 0.015625, "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 10,
    "hidden_act": "silu", "bos_token_id": 100257, "eos_token_id": 100257, "pad_token_id": 100256,
}  # fmt: skip  # without what it says of Mamba layers, of which it has none

_GEMMA_4: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
    "num_attention_heads": 32, "num_key_value_heads": 16, "num_global_key_value_heads": 4, "head_dim": 256,
    "global_head_dim": 512, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "vocab_size": 262144,
    "sliding_window": 1024, "use_bidirectional_attention": "vision", "eos_token_id": [1, 106],
}  # fmt: skip
_GEMMA_4_A4B: dict[str, Any] = {
    "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16,
    "num_key_value_heads": 8, "num_global_key_value_heads": 2, "enable_moe_block": True, "num_experts": 128,
    "top_k_experts": 8, "moe_intermediate_size": 704,
}  # fmt: skip
_NEMOTRON_3_NANO: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 2688, "vocab_size": 131072, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 8, "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "intermediate_size": 1856, "eos_token_id": 2,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
_SCOUT: dict[str, Any] = {
    "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 202048, "num_local_experts": 16, "interleave_moe_layer_step": 1, "no_rope_layers": [],
    "attention_chunk_size": 8192, "eos_token_id": [200001, 200007, 200008], "max_position_embeddings": 10485760,
}  # fmt: skip
_MAVERICK: dict[str, Any] = {"num_local_experts": 128, "interleave_moe_layer_step": 2, "use_qk_norm": False}
_GLM_47_FLASH: dict[str, Any] = {  # as it is published: a layer more predicts further tokens
    "model_type": "glm4_moe_lite", "attention_bias": False, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 10240, "max_position_embeddings": 202752, "moe_intermediate_size": 1536,
    "topk_method": "noaux_tc", "norm_topk_prob": True, "num_attention_heads": 20, "n_group": 1, "topk_group": 1,
    "n_routed_experts": 64, "n_shared_experts": 1, "routed_scaling_factor": 1.8, "num_experts_per_tok": 4,
    "first_k_dense_replace": 1, "num_hidden_layers": 47, "num_key_value_heads": 20, "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 1000000,
    "tie_word_embeddings": False, "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "v_head_dim": 256, "vocab_size": 154880, "eos_token_id": [154820, 154827, 154829],
}  # fmt: skip
SIZES: dict[str, tuple[dict[str, Any], float, int]] = {  # parameters, and bytes of KV of a token in 16 bits
    "Gemma 4 31B": (_GEMMA_4, 30.7e9, 4 * (50 * 16 * 256 + 10 * 4 * 512)),
    "Gemma 4 26B-A4B": (_GEMMA_4 | _GEMMA_4_A4B, 25.2e9, 4 * (25 * 8 * 256 + 5 * 2 * 512)),
    "GLM-4.7-Flash": (_GLM_47_FLASH, 29.9e9, 2 * 47 * 576),
    "Nemotron 3 Nano": (_NEMOTRON_3_NANO, 31.6e9, 4 * 6 * 2 * 128),
    "Llama 4 Scout": (_SCOUT, 107.8e9, 4 * 48 * 8 * 128),
    "Llama 4 Maverick": (_SCOUT | _MAVERICK, 400.7e9, 4 * 48 * 8 * 128),
}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{family} untied": (family, {"tie_word_embeddings": False}) for family in FAMILIES},
    **{f"{family} tied": (family, {"tie_word_embeddings": True}) for family in FAMILIES},
    "llama biases everywhere": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama no sharing of heads": ("llama", {"num_key_value_heads": 6}),
    "llama one KV head": ("llama", HEADS_5_1),
    "llama llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama linear rope": ("llama", {"rope_parameters": LINEAR}),
    "llama other theta and eps": ("llama", {"rope_theta": 500.0, "rms_norm_eps": 1e-2}),
    "mistral no window": ("mistral", {"sliding_window": None}),
    "qwen2 three heads": ("qwen2", HEADS_3_1),
    "qwen2 yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen3 biases": ("qwen3", {"attention_bias": True}),
    "qwen3 wide heads": ("qwen3", {"head_dim": 34}),
    "gemma2 no caps": ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma2 a window of one": ("gemma2", {"sliding_window": 1}),
    "gpt_oss no biases": ("gpt_oss", {"attention_bias": False}),
    "gpt_oss windows elsewhere": ("gpt_oss", {"layer_types": LATER_WINDOWS}),
    "gpt_oss plain rope": ("gpt_oss", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "mistral a window": ("mistral", {"sliding_window": 9}),
    "qwen2 windows in some layers": ("qwen2", QWEN_WINDOWS | {"max_window_layers": 1}),
    "qwen3 windows in all layers": ("qwen3", QWEN_WINDOWS | {"max_window_layers": 0}),
    "gemma2 windows elsewhere": ("gemma2", {"layer_types": LATER_WINDOWS}),
    "gemma2 biases": ("gemma2", {"attention_bias": True}),
    "gemma3 caps": ("gemma3_text", {"final_logit_softcapping": 5.0}),
    "gemma3 biases": ("gemma3_text", {"attention_bias": True}),
    "gemma3 windows elsewhere": ("gemma3_text", {"layer_types": LATER_WINDOWS}),
    "phi3 all turns, no window": ("phi3", {"sliding_window": None, "rope_parameters": None}),
    "phi3 within the original context": (
        "phi3", {"rope_parameters": LONG_PARTIAL, "head_dim": 8, "original_max_position_embeddings": 256}
    ),
    "granite biases": ("granite", EVERYWHERE),
    "granite plain": ("granite", {"residual_multiplier": 1.0, "embedding_multiplier": 1, "logits_scaling": 1}),
    "granite a large epsilon": ("granite", {"rms_norm_eps": 0.3}),
    "smollm3 every layer turns": ("smollm3", {"no_rope_layers": [1, 1, 1]}),
    "smollm3 no windows": ("smollm3", {"use_sliding_window": False}),
    "smollm3 biases": ("smollm3", EVERYWHERE),
    "olmo2 biases": ("olmo2", {"attention_bias": True}),
    "olmo2 one KV head": ("olmo2", {"num_key_value_heads": 1}),
    "glm no biases": ("glm", {"attention_bias": False}),
    "glm all turns": ("glm", {"partial_rotary_factor": 1.0}),
    "glm4 no biases": ("glm4", {"attention_bias": False}),
    "glm4 yarn": ("glm4", {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}),
    "cohere heads as they are": ("cohere", {"use_qk_norm": False}),
    "cohere biases": ("cohere", {"attention_bias": True}),
    "cohere2 biases": ("cohere2", {"attention_bias": True}),
    "cohere2 windows elsewhere": ("cohere2", {"layer_types": LATER_WINDOWS}),
    "qwen3_moe not renormalized": ("qwen3_moe", {"norm_topk_prob": False}),
    "qwen3_moe every second layer": ("qwen3_moe", {"decoder_sparse_step": 2, "mlp_only_layers": []}),
    "qwen3_moe windows": ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 12}),
    "qwen3_moe one expert": ("qwen3_moe", {"num_experts_per_tok": 1}),
    "mixtral windows": ("mixtral", {"sliding_window": 12}),
    "glm4_moe all turns": ("glm4_moe", {"rope_parameters": ALL_TURNS}),
    "glm4_moe one group": ("glm4_moe", {"n_group": 1, "topk_group": 1, "norm_topk_prob": False}),
    "glm4_moe biases, no norms": ("glm4_moe", {"attention_bias": True, "use_qk_norm": False}),
    "glm4_moe no experts at all": ("glm4_moe", {"first_k_dense_replace": 5}),
    "qwen3_next no experts, biases": ("qwen3_next", {"num_experts": 0, "attention_bias": True}),
    "qwen3_next not renormalized, every second layer": (
        "qwen3_next", {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": []},
    ),
    "qwen3_next attention alone": ("qwen3_next", {"layer_types": ["full_attention"] * 3}),
    "qwen3_5 other sizes": (
        "qwen3_5_text",
        {
            "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 2,
        },
    ),
    "granitemoehybrid no experts": ("granitemoehybrid", {"num_local_experts": 0, "num_experts_per_tok": 0}),
    "granitemoehybrid attention alone, rotary": (
        "granitemoehybrid",
        {"layer_types": ["attention"] * 3, "position_embedding_type": "rope", "num_local_experts": 0},
    ),
    "granitemoehybrid other biases": (
        "granitemoehybrid", {"mamba_conv_bias": False, "mamba_proj_bias": True, "attention_bias": True},
    ),
    "granitemoehybrid one group": ("granitemoehybrid", {"mamba_n_groups": 1, "mamba_d_conv": 4}),
    "falcon_h1 norms, biases": (
        "falcon_h1",
        {
            "mamba_rms_norm": True, "mamba_norm_before_gate": False, "projectors_bias": True, "mamba_proj_bias": True,
            "attention_bias": True, "mamba_conv_bias": False,
        },
    ),
    "falcon_h1 no multipliers, biases of MLPs": (
        "falcon_h1", {"mlp_multipliers": None, "ssm_multipliers": None, "mlp_bias": True, "mamba_n_groups": 3},
    ),
    "nemotron_h latent experts, biases": (
        "nemotron_h", {"moe_latent_size": 24, "use_bias": True, "mlp_bias": True, "norm_topk_prob": False},
    ),
    "nemotron_h no experts": (
        "nemotron_h",
        {
            "layers_block_type": ["full_attention", "mlp", "linear_attention", "mlp"], "n_groups": 1,
            "use_conv_bias": False, "conv_kernel": 4,
        },
    ),
    "lfm2 biases, exact sizes": ("lfm2", {"conv_bias": True, "block_auto_adjust_ff_dim": False, "conv_L_cache": 4}),
    "gemma4 values of their own, biases, no cap": (
        "gemma4_text", {"attention_k_eq_v": False, "attention_bias": True, "final_logit_softcapping": None},
    ),
    "gemma4 heads alike, windows elsewhere": (
        "gemma4_text", {"global_head_dim": 16, "num_global_key_value_heads": None, "layer_types": LATER_WINDOWS},
    ),
    "gemma4 windows of smaller heads": ("gemma4_text", {"per_layer_config": {"0": {"head_dim": 8}}}),
    "gemma4 a stretch": ("gemma4_text", {"rope_parameters": GEMMA4_ROPE}),
    "gemma4 small": ("gemma4_text", GEMMA4_SMALL),
    "gemma4 small, more tokens than have logits": ("gemma4_text", GEMMA4_SMALL | {"vocab_size_per_layer_input": 140}),
    "gemma4 more than nine layers": (  # whose numbers have two digits in its configuration
        "gemma4_text", {"num_hidden_layers": 12, "layer_types": None, "sliding_window": 5},
    ),
    "gemma4 experts": ("gemma4_text", GEMMA4_EXPERTS),
    "llama4 no norms, biases": ("llama4_text", {"use_qk_norm": False, "attention_bias": True}),
    "llama4 two experts": ("llama4_text", {"num_experts_per_tok": 2}),
    "llama4 every second layer, no growth": (
        "llama4_text", {"moe_layers": None, "interleave_moe_layer_step": 2, "attn_temperature_tuning": False},
    ),
    "llama4 no experts at all": ("llama4_text", {"moe_layers": [], "attention_chunk_size": 7}),
    "llama4 chunks without positions": (
        "llama4_text", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]},
    ),
    "llama4 a stretch without a middle": (  # as in Scout
        "llama4_text",
        {"rope_parameters": LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0}, "attention_chunk_size": 1},
    ),
    "llama4 queries grow later": ("llama4_text", {"floor_scale": 42}),
    "deepseek_v2 a latent of queries, all experts, biases, no stretch": (
        "deepseek_v2",
        {
            "q_lora_rank": 28, "topk_method": "greedy", "n_group": None, "attention_bias": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rms_norm_eps": 1e-2,
        },
    ),
    "deepseek_v3 half-split, queries of the hidden state, one group": (
        "deepseek_v3", {"rope_interleave": False, "q_lora_rank": None, "n_group": 1, "topk_group": 1},
    ),
    "deepseek_v3 no experts at all": ("deepseek_v3", {"first_k_dense_replace": 5}),
    "deepseek_v3 a stretch of scores alone": ("deepseek_v3", {"rope_parameters": YARN | {"mscale_all_dim": 0.7}}),
    "glm4_moe_lite an MLP in the middle, biases": (
        "glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense", "sparse"], "attention_bias": True},
    ),
    "glm4_moe_lite values larger than keys": (
        "glm4_moe_lite", {"v_head_dim": 34, "kv_lora_rank": 7, "qk_rope_head_dim": 2, "head_dim": 2, "n_group": 2},
    ),
    "seed_oss no biases": ("seed_oss", {"attention_bias": False}),
    "seed_oss biases everywhere": ("seed_oss", EVERYWHERE | {"attention_out_bias": True}),
}  # fmt: skip


def reference(folder: Path, tokens: list[int]) -> Tensor:
    model = reference_model(folder)
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def text(length: int, seed: int) -> list[int]:
    return torch.randint(3, 131, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_match(variant: str, tmp_path: Path) -> None:
    family, overrides = VARIANTS[variant]
    folder = tiny_model(family, tmp_path, **overrides)
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    assert loaded.config.family == family
    texts = [text(29, 1), text(43, 2), text(7, 3)]
    run = PagedRun(loaded.model, sequences=3, longest=48)
    steps = [  # prefills of two; a chunk beside a decode; then all decode in one batch
        {0: texts[0][:20], 1: texts[1][:11]},
        {0: texts[0][20:21], 1: texts[1][11:35], 2: texts[2][:1]},
        {0: texts[0][21:22], 1: texts[1][35:36], 2: texts[2][1:2]},
        {0: texts[0][22:], 1: texts[1][36:37], 2: texts[2][2:]},
        {1: texts[1][37:]},
    ]
    got: list[list[Tensor]] = [[], [], []]
    for step in steps:
        for sequence, logits in run.step(step).items():
            got[sequence].append(logits)
    for tokens, parts in zip(texts, got, strict=True):
        logits = torch.cat(parts)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, reference(folder, tokens), atol=1e-4, rtol=0)


def test_bfloat16_stays_close(tmp_path: Path) -> None:
    folder = tiny_model("qwen3", tmp_path)
    loaded = load_model(folder, device=CPU, dtype=torch.bfloat16)
    tokens = text(30, 4)
    logits = PagedRun(loaded.model, 1, 32).step({0: tokens})[0]
    expected = reference(folder, tokens)
    assert (logits - expected).abs().mean() < 0.05 * expected.abs().mean()


def test_no_rows_no_logits(tmp_path: Path) -> None:
    model = load_model(tiny_model("llama", tmp_path), device=CPU, dtype=torch.float32).model
    assert model.logits(torch.zeros(0, 48)).shape == (0, 131)


@pytest.mark.parametrize("tied", [True, False])
def test_num_bytes_counts_every_tensor_held(tmp_path: Path, *, tied: bool) -> None:
    folder = tiny_model("qwen2", tmp_path, tie_word_embeddings=tied)
    parameters = sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(folder).parameters())
    table = 131 * 48
    on_cpu = load_model(folder, device=CPU, dtype=torch.float32).model.num_bytes
    assert on_cpu == 4 * (parameters + tied * table)  # a tied head is packed apart from the table
    dense = load_model(folder, device=CPU, dtype=torch.bfloat16).model.num_bytes
    assert dense == 2 * parameters


def test_kv_cache_sizes(tmp_path: Path) -> None:
    config = model_config(tiny_model("llama", tmp_path))
    cache = KVCache.allocate(config, 5, 8, torch.bfloat16, CPU)
    tensors = [tensor for layer in cache.layers for tensor in layer[:2]]
    assert [tuple(tensor.shape) for tensor in tensors] == [(5, 8, 2, 16)] * 6
    held = sum(tensor.nbytes for tensor in tensors)
    assert held == 5 * KVCache.bytes_per_block(LayerGroups.single(config.kept), 8, torch.bfloat16)


@pytest.mark.parametrize("family", ["gemma4_text", "qwen3_next", "deepseek_v2"])
def test_attention_is_built_for_the_heads_of_each_layer(family: str, tmp_path: Path) -> None:
    model = model_config(tiny_model(family, tmp_path))
    kinds = [model.usual_heads, *model.other_heads]
    assert {*kinds} >= {heads for heads in model.attended if heads is not None}
    assert len({*kinds}) == len(kinds) == 1 + (family == "gemma4_text")


def test_latents_take_one_tensor(tmp_path: Path) -> None:
    model = model_config(tiny_model("glm4_moe_lite", tmp_path))
    cache = KVCache.allocate(model, 5, 8, torch.bfloat16, CPU)
    assert {layer.heads for layer in cache.layers} == {KVHeads(1, 26, 20)}
    storages = [tensor.untyped_storage() for layer in cache.layers for tensor in layer[:2]]
    held = {storage.data_ptr(): storage.nbytes() for storage in storages}
    assert sum(held.values()) == 5 * 8 * 3 * 26 * 2
    assert KVCache.bytes_per_block(LayerGroups.single(model.kept), 8, torch.bfloat16) == 8 * 3 * 26 * 2


@pytest.mark.parametrize(
    ("family", "overrides", "windows"),
    [
        ("llama", {}, (None,)),
        ("mistral", {"sliding_window": 100}, (100,)),
        ("mistral", {"sliding_window": None}, (None,)),
        ("mistral", {"sliding_window": 4096}, (None,)),  # which no context outgrows
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, (64,)),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, (None, 64, 64)),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, (64,)),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 64}, (None,)),
        ("gemma2", {"sliding_window": 64}, (None, 64, 64)),
        ("gemma2", {"sliding_window": 250}, (None,)),  # which saves too little
        ("gemma2", {"sliding_window": 64, "layer_types": ["sliding_attention"] * 3}, (64,)),
    ],
)
def test_layers_are_in_groups_by_what_they_see(
    family: str, overrides: dict[str, Any], windows: tuple[int | None, ...], tmp_path: Path
) -> None:
    config = model_config(tiny_model(family, tmp_path, **overrides))
    assert (config.max_context, config.layer_groups.windows) == (256, windows)
    assert config.within(50).layer_groups.windows == (None,)


def test_granite_4_micro_as_it_is_published(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GRANITE_4_MICRO))
    config = model_config(tmp_path)
    assert (config.num_layers, config.num_kv_heads, config.max_context) == (40, 8, 131_072)
    assert config.layer_groups.windows == (None,)
    assert num_parameters(config.within(64)) == 3_402_836_480


def test_keys_and_values_that_no_layer_reads_may_be_stored(tmp_path: Path) -> None:
    """As in published files of the small Gemma 4."""
    folder = tiny_model("gemma4_text", tmp_path, **GEMMA4_SMALL)
    tensors = load_file(folder / "model.safetensors")
    tensors |= {f"model.layers.4.self_attn.{name}.weight": torch.zeros(3, 3) for name in ("k_proj", "v_proj", "k_norm")}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    load_model(folder, device=CPU, dtype=torch.float32)
    tensors["model.layers.1.self_attn.stray"] = torch.zeros(3)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelLoadError, match="stray"):
        load_model(folder, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_published_models(name: str, tmp_path: Path) -> None:
    config, parameters, per_token = SIZES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = model_config(tmp_path).within(64)
    assert num_parameters(found) == pytest.approx(parameters, rel=2e-3)
    assert KVCache.bytes_per_block(LayerGroups.single(found.kept), 1, torch.bfloat16) == per_token


@pytest.mark.parametrize(
    ("family", "overrides", "said"),
    [
        ("qwen3_next", {"linear_num_key_heads": 4}, "6 value heads over 4 key heads do not divide"),
        ("qwen3_5_text", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1"),
        ("qwen3_5_moe_text", {"linear_key_head_dim": 0}, "linear_key_head_dim is 0"),
        ("lfm2", {"conv_L_cache": 1}, "conv_L_cache is 1"),
        ("granitemoehybrid", {"mamba_n_groups": 4}, "does not divide"),
        (
            "gemma4_text",
            {"per_layer_config": {"1": {"num_key_value_heads": 4}}},
            "6 heads over 4 KV heads of 16 do not",
        ),
        ("llama4_text", {"attention_chunk_size": None}, "attention_chunk_size is None"),
        ("llama4_text", {"attention_chunk_size": 0}, "attention_chunk_size is 0"),
        ("llama4_text", {"floor_scale": 0}, "floor_scale is 0"),
        ("llama4_text", {"intermediate_size_mlp": 0}, "intermediate_size_mlp is 0"),
        ("llama4_text", {"no_rope_layers": [1, 0]}, "no_rope_layers names 2 layers of 3"),
        ("llama4_text", {"moe_layers": [1, 3]}, "moe_layers names layer 3, of 3 layers"),
        ("llama4_text", {"interleave_moe_layer_step": 0, "moe_layers": None}, "can't be used"),
        (
            "llama4_text",
            {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "layer 1 is of type",
        ),
        ("llama4_text", {"num_experts_per_tok": 6}, "6 of 5 experts"),
        ("falcon_h1", {"mamba_n_groups": 4}, "does not divide"),
        ("nemotron_h", {"conv_kernel": 1}, "does not divide"),
        ("nemotron_h", {"moe_latent_size": 20}, "moe_latent_size is 20"),
        ("deepseek_v2", {"n_group": 0}, "n_group is 0"),
        ("deepseek_v2", {"topk_group": None}, "topk_group is None"),
        ("deepseek_v2", {"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
        ("deepseek_v3", {"kv_lora_rank": 0}, "kv_lora_rank is 0"),
        ("deepseek_v3", {"n_group": None}, "n_group is None"),
        ("deepseek_v3", {"first_k_dense_replace": None}, "first_k_dense_replace is None"),
        ("deepseek_v3", {"n_shared_experts": 0}, "n_shared_experts is 0"),
        ("deepseek_v3", {"num_experts_per_tok": None}, "num_experts_per_tok is None"),
        ("glm4_moe", {"n_group": 0}, "n_group is 0"),
        ("gemma4_text", {"num_kv_shared_layers": 2}, "before those, no layer is of type 'full_attention'"),
        ("gemma4_text", {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99}, "per_layer_input is 99"),
    ],
)
def test_sizes_that_are_none(family: str, overrides: dict[str, Any], said: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | overrides))
    with pytest.raises(ModelLoadError, match=f"{folder}.*{said}"):
        model_config(folder)


def test_eos_tokens_come_from_both_configurations(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, eos_token_id=[5, 6])
    (folder / "generation_config.json").write_text('{"eos_token_id": [6, 9]}')
    assert model_config(folder).eos_token_ids == (5, 6, 9)


def test_a_rotary_embedding_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    config = folder / "config.json"
    rope = {"rope_type": "spiral", "rope_theta": 1e4, "factor": 2.0}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_parameters": rope}))
    with pytest.raises(UnsupportedModelError, match=f"{folder}.*spiral"):
        model_config(folder)


PARTLY = {
    "gemma3_text",
    "gemma4_text",
    "phi3",
    "glm",
    "glm4",
    "glm4_moe",
    *RECURRENT[:3],
}  # in which a part of each head may turn
BY_LAYER = ("olmo3", "gemma4_text")  # which have frequencies by type of layer
OTHER_ACTIVATIONS = {"gemma2", "gemma3_text", "gemma4_text", "lfm2", "nemotron_h"}  # under other names, or none
_BY_LAYER = ("full_attention", "sliding_attention")
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}


@pytest.mark.parametrize(
    ("family", "overrides", "named"),
    [
        ("gemma2", {"hidden_activation": "gelu"}, "gelu"),
        ("gemma2", {"use_bidirectional_attention": True}, "bidirectional"),
        ("gemma3_text", {"hidden_activation": "gelu"}, "gelu"),
        ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 12}, "bidirectional"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma4_text", {"hidden_activation": "gelu"}, "gelu"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "bidirectional"),
        (
            "gemma4_text",
            {"per_layer_config": {"1": {"intermediate_size": 60}}},
            "layer 1 has intermediate_size of",
        ),
        ("gemma4_text", {"per_layer_config": {"1": {"head_dim": 24}}}, "layer 2 has other heads"),
        *((family, {"hidden_act": "gelu"}, "gelu") for family in FAMILIES if family not in OTHER_ACTIVATIONS),
        *((family, PARTIAL, "partial") for family in FAMILIES if family not in {*PARTLY, *BY_LAYER, "nemotron_h"}),
        *(
            (family, {"rope_parameters": dict.fromkeys(_BY_LAYER, PARTIAL["rope_parameters"])}, "partial")
            for family in BY_LAYER
        ),
        ("glm", {"rope_parameters": PARTIAL["rope_parameters"] | {"partial_rotary_factor": 0.2}}, "3 among 16"),
        ("glm4", {"rope_parameters": PARTIAL["rope_parameters"] | {"partial_rotary_factor": 2.0}}, "32 among 16"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob True"),
        ("deepseek_v2", {"n_group": 3}, "8 experts in 3 groups"),
        ("deepseek_v2", {"mlp_bias": True}, "mlp_bias True"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func 'sigmoid'"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq 2"),
        ("deepseek_v3", {"num_key_value_heads": 2}, "for each of 6 heads, not for 2"),
        ("granite", {"residual_multiplier": 0.0}, "residual_multiplier"),
        ("granite", {"logits_scaling": -1.0}, "logits_scaling"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
        *(
            (family, {"time_step_limit": [0.001, 0.1]}, "time_step_limit")
            for family in ("granitemoehybrid", "falcon_h1", "nemotron_h")
        ),
        ("granitemoehybrid", {"layer_types": ["sliding_attention"] * 3}, "layer 0 is of type 'sliding_attention'"),
        ("falcon_h1", {"mamba_rms_norm": True}, "mamba_norm_before_gate"),
        ("falcon_h1", {"mlp_bias": True}, "mlp_multipliers of MLPs with biases"),
        ("falcon_h1", {"mlp_multipliers": [0.0, 1.0]}, "mlp_multipliers"),
        ("nemotron_h", {"mlp_hidden_act": "gelu"}, "gelu"),
        ("nemotron_h", {"sliding_window": 12}, "sliding_window"),
        ("nemotron_h", {"layers_block_type": ["mlp", "full_attention"]}, "layer 0 is of type 'mlp'"),
        ("nemotron_h", {"layers_block_type": ["full_attention", "conv1d"]}, "layer 1 is of type 'conv1d'"),
        (
            "nemotron_h",
            {"layer_types": None, "layers_block_type": None, "hybrid_override_pattern": "M-Z*"},
            "layer 2 is of type 'Z'",
        ),
        ("nemotron_h", {"moe_intermediate_size": 24}, "inner size of 24"),
        ("qwen3_next", {"layer_types": ["linear_attention"] * 3}, "layers are all recurrent"),
        (
            "qwen3_5_text",
            {"layer_types": ["linear_attention", "mamba2", "full_attention"]},
            "layer 1 is of type 'mamba2'",
        ),
    ],
)
def test_what_a_family_would_compute_wrongly_is_refused(
    family: str, overrides: dict[str, Any], named: str, tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | overrides))
    with pytest.raises(UnsupportedModelError, match=f"{folder}.*{named}"):
        model_config(folder)


@pytest.mark.parametrize("family", ["falcon_h1", "nemotron_h"])
def test_layers_that_predict_further_tokens_follow_those_of_the_checkpoint(family: str, tmp_path: Path) -> None:
    config = model_config(tiny_model(family, tmp_path, num_mtp_layers=2))
    assert config.stored_layers != config.num_layers
    assert config.unused == ("mtp.", *(f"model.layers.{config.stored_layers + index}." for index in range(2)))


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention"])
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "cohere2", "gpt_oss"])
def test_layers_that_see_in_another_way_are_refused(family: str, kind: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path, layer_types=["full_attention"] * 3)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"layer_types": [kind] * 3}))
    with pytest.raises(UnsupportedModelError, match=kind):
        model_config(folder)


@pytest.mark.parametrize("window", [0, -1])
@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_windows_that_see_nothing_are_refused(family: str, window: int, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path, sliding_window=12)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": window}))
    with pytest.raises(ModelLoadError, match=f"sliding_window is {window}"):
        model_config(folder)


_SLIDE = {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}


@pytest.mark.parametrize(
    ("family", "overrides", "said"),
    [
        ("smollm3", {"use_sliding_window": False, "sliding_window": 12, **_SLIDE}, "use_sliding_window is false"),
        *(
            (family, {"use_sliding_window": True, "sliding_window": None, **_SLIDE}, "there is no sliding_window")
            for family in ("smollm3", "qwen2", "qwen3", "cohere2", "gpt_oss")
        ),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 12, **_SLIDE}, "there is no sliding_window"),
    ],
)
def test_windows_that_contradict_each_other_are_refused(
    family: str, overrides: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | overrides))
    with pytest.raises(ModelLoadError, match=f"{folder}.*{said}"):
        model_config(folder)


@pytest.mark.parametrize("eps", [0.0, 1.5, None, "tiny"])
@pytest.mark.parametrize(("family", "name"), [("llama", "rms_norm_eps"), ("cohere", "layer_norm_eps")])
def test_an_epsilon_that_is_none(family: str, name: str, eps: object, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {name: eps}))
    with pytest.raises(ModelLoadError, match=name):
        model_config(folder)


@pytest.mark.parametrize(
    "family",
    ["gemma2", "gemma3_text", "gemma4_text", "granite", "cohere", "granitemoehybrid", "falcon_h1", "nemotron_h"],
)
def test_bfloat16_is_as_near_as_transformers(family: str, tmp_path: Path) -> None:
    """In families that keep something in float32 or fold a factor into it."""
    folder = tiny_model(family, tmp_path)
    tokens, exact = text(40, 4), reference(folder, text(40, 4))
    with torch.no_grad():
        theirs = reference_model(folder, torch.bfloat16)(torch.tensor([tokens])).logits[0].float()
    ours = PagedRun(load_model(folder, device=CPU, dtype=torch.bfloat16).model, 1, 48).step({0: tokens})[0].float()
    assert (ours - exact).norm() < 1.1 * (theirs - exact).norm()


def test_heads_that_do_not_divide(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"num_key_value_heads": 2', '"num_key_value_heads": 4'))
    with pytest.raises(ModelLoadError, match="do not divide"):
        model_config(folder)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("wanted", [[0, 6], [1], [6, 2, 2], []], ids=str)
def test_tokens_that_are_not_wanted_change_nothing(family: str, wanted: list[int], tmp_path: Path) -> None:
    model = load_model(tiny_model(family, tmp_path), device=CPU, dtype=torch.float32).model
    prompts = {0: text(1, 1), 1: text(6, 2)}  # seven tokens; whatever is wanted, later steps need the KV of all
    whole, part = (PagedRun(model, sequences=2, longest=12) for _ in range(2))
    logits = torch.cat(list(whole.step(prompts).values()))
    torch.testing.assert_close(part.wanted(prompts, wanted), logits[wanted], atol=1e-5, rtol=1e-5)
    more = {0: text(2, 3), 1: text(1, 4)}
    torch.testing.assert_close(part.step(more), whole.step(more))


def test_attention_within_one_chunk_is_of_one_kind(tmp_path: Path) -> None:
    """Layers that see everything and those of chunks, which no context outgrows, share what is planned and compiled."""
    folder = tiny_model("llama4_text", tmp_path, attention_chunk_size=32)
    for context, kinds in ((32, {PLAIN}), (33, {PLAIN, AttentionParams(window=32, chunked=True)})):
        decoder = load_model(folder, device=CPU, dtype=torch.float32, max_context=context).model.decoder
        assert {layer.attention.params for layer in decoder.layers} == kinds  # type: ignore[attr-defined]
