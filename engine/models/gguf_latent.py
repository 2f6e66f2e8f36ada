"""Names and fields of latent attention and experts in GGUF files of llama.cpp's architecture `deepseek2`.

The weights that expand latents to keys and values are one tensor in old files and two in newer ones, in which the keys'
weight is transposed. Newer files have the sizes of keys and values at separate keys of the metadata, since the usual
keys then hold the sizes of latents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.gguf_names import (
    GGUF_EXPERTS,
    GGUF_GATED_MLP,
    GGUF_NORMS_BEFORE,
    GGUF_ROUTER,
    GGUF_SCORES,
    GGUF_SIGMOID,
    GGUF_SOFTMAX,
    GGUFNames,
    Joined,
    Sizes,
)

_ROTARY = ".rope.dimension_count"
_GROUPS, _KEPT_GROUPS = ".expert_group_count", ".expert_group_used_count"
_MULTIPLIER = ".rope.scaling.yarn_log_multiplier"
_UNGROUPED = 64  # number of experts in published models that choose among all experts


def gguf_latent(*, corrected: bool) -> GGUFNames:
    """The names of a family that scores experts by sigmoid, with a correction for the choice, or by softmax."""
    return GGUFNames(
        "deepseek2",
        {
            **GGUF_NORMS_BEFORE,
            **GGUF_GATED_MLP,
            "attn_q": "self_attn.q_proj",
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            "attn_output": "self_attn.o_proj",
            GGUF_ROUTER: "mlp.gate",
            "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
            "ffn_up_shexp": "mlp.shared_experts.up_proj",
            "ffn_down_shexp": "mlp.shared_experts.down_proj",
        },
        whole={"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"} if corrected else {},
        experts=GGUF_EXPERTS,
        joined={"self_attn.kv_b_proj": Joined(_expansions, (("attn_kv_b",), ("attn_k_b", "attn_v_b")))},
        head_dim=_ROTARY,
        optional_bias=False,
        settings={
            "n_routed_experts": ".expert_count",
            "num_experts_per_tok": ".expert_used_count",
            "n_shared_experts": ".expert_shared_count",
            "moe_intermediate_size": ".expert_feed_forward_length",
            "kv_lora_rank": ".attention.kv_lora_rank",
            "qk_rope_head_dim": _ROTARY,
            "_key": ".attention.key_length",
            "_value": ".attention.value_length",
        },
        defaults={
            "first_k_dense_replace": (".leading_dense_block_count", 0),
            "routed_scaling_factor": (".expert_weights_scale", 1.0),
            "norm_topk_prob": (".expert_weights_norm", False),
            "n_group": (_GROUPS, 0),
            "topk_group": (_KEPT_GROUPS, 0),
            "q_lora_rank": (".attention.q_lora_rank", 0),
            "_own_key": (".attention.key_length_mla", 0),
            "_own_value": (".attention.value_length_mla", 0),
            "_multiplier": (_MULTIPLIER, 0.0),
        },
        implied={GGUF_SCORES: GGUF_SIGMOID if corrected else GGUF_SOFTMAX},
        further_layers=".nextn_predict_layers",
        present={"_split": "attn_k_b.weight"},
        derived=lambda fields: {**_latent_fields(fields), **({"topk_method": "noaux_tc"} if corrected else {})},
    )


def _expansions(parts: Sequence[Tensor], sizes: Sizes) -> Tensor:
    """[heads * (plain + value), rank]: for each head the rows of its keys, then the rows of its values."""
    if len(parts) == 1:
        return parts[0]
    keys, values = parts  # [heads, rank, plain], [heads, value, rank]
    heads, rank = sizes(".attention.head_count"), sizes(".attention.kv_lora_rank")
    if keys.shape[:2] != (heads, rank) or values.shape[::2] != (heads, rank):
        shapes = f"{tuple(keys.shape)} and {tuple(values.shape)}"
        raise ModelLoadError(f"attn_k_b and attn_v_b have shapes {shapes}, of {heads} heads and a rank of {rank}")
    return torch.cat((keys.transpose(1, 2), values), dim=1).flatten(0, 1)


def _latent_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    heads, pairs = fields["num_attention_heads"], fields["num_key_value_heads"]
    if pairs not in {1, heads}:
        raise ModelLoadError(f"head_count_kv is {pairs}: latent attention has keys for each of {heads} heads, or one")
    return {
        **_sizes(fields),
        **_groups(fields),
        "rope_parameters": _rope(fields),
        "num_key_value_heads": heads,
        "q_lora_rank": fields["q_lora_rank"] or None,
        "routed_scaling_factor": fields["routed_scaling_factor"] or 1.0,  # as llama.cpp reads 0
        "num_nextn_predict_layers": 0,
    }


def _sizes(fields: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the non-rotary part of a head's keys, and of its values."""
    rank, rotary, key, value = (fields[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "_key", "_value"))
    own = fields["_own_key"], fields["_own_value"]
    if any(own):
        if (key, value) != (rank + rotary, rank):
            said = f"key_length {key} and value_length {value}"
            raise ModelLoadError(f"{said} beside key_length_mla: expected {rank + rotary} and {rank}, of the latents")
        key, value = own
    elif fields["_split"]:
        raise ModelLoadError("attn_k_b without key_length_mla and value_length_mla: the sizes of heads are not known")
    if min(key - rotary, value) < 1:
        raise ModelLoadError(f"heads of {key} with {rotary} that rotate, and values of {value}")
    return {"qk_nope_head_dim": key - rotary, "v_head_dim": value}


def _groups(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The groups among which experts are chosen: DeepSeek-V2 ranks several groups by the best expert of each."""
    groups, kept, experts = fields["n_group"], fields["topk_group"], fields["n_routed_experts"]
    if (not groups and experts > _UNGROUPED) or (groups > 1 and not kept):
        raise UnsupportedModelError(
            f"without deepseek2{_KEPT_GROUPS if groups else _GROUPS} the groups that {experts} experts are chosen in "
            "are not known: convert the model again with a newer llama.cpp"
        )
    method = "group_limited_greedy" if groups > 1 else "greedy"
    return {"n_group": groups or 1, "topk_group": kept or 1, "topk_method": method}


def _rope(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The rope parameters with the factor that sharpens scores. Files lack the factor of cosines, which is the same in
    all published models."""
    rope, multiplier = fields["rope_parameters"], fields["_multiplier"]
    kind = rope["rope_type"]
    if kind == "default":
        return dict(rope)
    if (kind == "yarn") != bool(multiplier):
        raise UnsupportedModelError(
            f"rope scaling {kind!r} with deepseek2{_MULTIPLIER} {multiplier} is not implemented"
        )
    if kind != "yarn":
        return dict(rope)
    scale = round(10 * multiplier, 6)  # llama.cpp's converter writes a tenth of it
    return {**rope, "mscale": scale, "mscale_all_dim": scale}
