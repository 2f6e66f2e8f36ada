"""Names and layouts of delta nets in GGUF files of Qwen3-Next and Qwen3.5, as llama.cpp's converter writes them.

The converter stores rates of decay instead of their logarithms. For Qwen3.5 it also reorders value heads: if several of
them share a key head, files have the first one of each key head, then the second of each, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thothy_ai.engine.models.gguf_names import GGUF_ROUTER, Change, Sizes

GGUF_DELTA_SETTINGS = {
    "linear_conv_kernel_dim": ".ssm.conv_kernel",
    "linear_key_head_dim": ".ssm.state_size",
    "linear_num_key_heads": ".ssm.group_count",
    "linear_num_value_heads": ".ssm.time_step_rank",
    "linear_value_head_dim": ".ssm.inner_size",  # of all heads
}
GGUF_DELTA_DEFAULTS = {"full_attention_interval": (".full_attention_interval", 4)}
GGUF_SHARED_SETTINGS = {
    "num_experts": ".expert_count",
    "num_experts_per_tok": ".expert_used_count",
    "moe_intermediate_size": ".expert_feed_forward_length",
    "shared_expert_intermediate_size": ".expert_shared_feed_forward_length",
}
GGUF_DELTA_GATES = {"ssm_a": "linear_attn.A_log", "ssm_dt.bias": "linear_attn.dt_bias"}
GGUF_DELTA_NET = {
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
}
GGUF_DELTA_APART = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
}
GGUF_SHARED_EXPERT = {
    GGUF_ROUTER: "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}


def delta_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields that a file gives in another form: the interval of attention layers, and the size of all heads' values."""
    interval, heads = fields["full_attention_interval"], fields["linear_num_value_heads"]
    layers = range(1, 1 + fields["num_hidden_layers"])
    return {
        "layer_types": ["linear_attention" if at % interval else "full_attention" for at in layers],
        "linear_value_head_dim": fields["linear_value_head_dim"] // heads,
    }


def logarithms(rates: Tensor, _sizes: Sizes) -> Tensor:
    """The logarithms of the negative rates [heads, …] -> [heads]."""
    return rates.flatten().neg().log()


def taps(weight: Tensor, _sizes: Sizes) -> Tensor:
    """[channels, width] -> [channels, 1, width]."""
    return weight.flatten(1).unsqueeze(1) if weight.ndim > 1 else weight.view(-1, 1, 1)


def by_key_head(parts: Sequence[Tensor], sizes: Sizes) -> Tensor:
    """Queries, keys and values, and gates -> Qwen3-Next's projection, in which each key head's rows are together."""
    heads, keys = sizes(".ssm.group_count"), sizes(".ssm.group_count") * sizes(".ssm.state_size")
    mixed, gates = parts
    kinds = (mixed[:keys], mixed[keys : 2 * keys], mixed[2 * keys :], gates)
    return torch.cat([kind.unflatten(0, (heads, -1)) for kind in kinds], dim=1).flatten(0, 1)


def unchanged(tensor: Tensor, _sizes: Sizes) -> Tensor:
    return tensor


def one_row(weight: Tensor, _sizes: Sizes) -> Tensor:
    """[N] or [1, N] -> [1, N]."""
    return weight.view(1, -1)


GGUF_DELTA_CHANGES: Mapping[str, Change] = {
    "ssm_a": logarithms,
    "ssm_conv1d.weight": taps,
    "ssm_norm.weight": unchanged,  # this norm multiplies by w, not 1 + w
    "ffn_gate_inp_shexp.weight": one_row,
}


def _regrouped(heads: Tensor, sizes: Sizes) -> Tensor:
    """Rows of all value heads, with the heads of each key head side by side again."""
    keys = sizes(".ssm.group_count")
    shared = sizes(".ssm.time_step_rank") // keys
    return heads.view(shared, keys, -1, *heads.shape[1:]).transpose(0, 1).reshape(heads.shape)


def _values_regrouped(rows: Tensor, sizes: Sizes) -> Tensor:
    """Rows of queries, keys and values, with the values regrouped."""
    others = 2 * sizes(".ssm.group_count") * sizes(".ssm.state_size")
    return torch.cat((rows[:others], _regrouped(rows[others:], sizes)))


GGUF_TILED_CHANGES: Mapping[str, Change] = {
    **GGUF_DELTA_CHANGES,
    "attn_qkv.weight": _values_regrouped,
    "attn_gate.weight": _regrouped,
    "ssm_alpha.weight": _regrouped,
    "ssm_beta.weight": _regrouped,
    "ssm_a": lambda rates, sizes: _regrouped(logarithms(rates, sizes), sizes),
    "ssm_dt.bias": _regrouped,
    "ssm_conv1d.weight": lambda weight, sizes: _values_regrouped(taps(weight, sizes), sizes),
    "ssm_out.weight": lambda weight, sizes: _regrouped(weight.T.contiguous(), sizes).T,
}
