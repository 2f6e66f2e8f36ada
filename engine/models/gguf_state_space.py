"""Names and layouts of Mamba-2's state spaces in GGUF files, as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from thothy_ai.engine.models.gguf_delta_net import logarithms, taps
from thothy_ai.engine.models.gguf_names import Change, Sizes


def gguf_space(part: str) -> Mapping[str, str]:
    """Names of tensors of a layer's `part`."""
    return {
        "ssm_in": f"{part}.in_proj",
        "ssm_conv1d": f"{part}.conv1d",
        "ssm_norm": f"{part}.norm",
        "ssm_out": f"{part}.out_proj",
    }


def gguf_space_gates(part: str) -> Mapping[str, str]:
    """Names of the state space's tensors whose endings also differ."""
    return {"ssm_a": f"{part}.A_log", "ssm_d": f"{part}.D", "ssm_dt.bias": f"{part}.dt_bias"}


def _flat(tensor: Tensor, _sizes: Sizes) -> Tensor:
    """[groups, N] or [heads, 1] as one row."""
    return tensor.flatten()


GGUF_SPACE_CHANGES: Mapping[str, Change] = {
    "ssm_a": logarithms,
    "ssm_d": _flat,
    "ssm_norm.weight": _flat,
    "ssm_conv1d.weight": taps,
}

GGUF_SPACE_SETTINGS: Mapping[str, str] = {
    "mamba_d_conv": ".ssm.conv_kernel",
    "mamba_d_state": ".ssm.state_size",
    "mamba_n_groups": ".ssm.group_count",
    "mamba_n_heads": ".ssm.time_step_rank",
    "_space_width": ".ssm.inner_size",  # of all heads
}
