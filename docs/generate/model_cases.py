"""Configurations that are tried while `models.md` is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Change = Mapping[str, Any]

TINY: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512,
}  # fmt: skip
_THETA = {"rope_theta": 10_000.0}
_STRETCH = {"factor": 4.0, "original_max_position_embeddings": 128}
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LONG = {"short_factor": [1.0] * 32, "long_factor": [4.0] * 32}


def _rope(kind: str, **values: object) -> Change:
    return {"rope_parameters": {"rope_type": kind, **_THETA, **values}}


ROPES: dict[str, Change] = {
    "default": {},
    "linear": _rope("linear", factor=4.0),
    "llama3": _rope("llama3", **_STRETCH, **_LLAMA3),
    "yarn": _rope("yarn", **_STRETCH),
    "dynamic": _rope("dynamic", factor=4.0),
    "longrope": _rope("longrope", **_STRETCH, **_LONG),
    "partial_rotary_factor": {
        **_rope("default", partial_rotary_factor=0.5), "model_type": "phi3", "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2,
    },
}  # fmt: skip


def _quantized(method: str, **values: object) -> Change:
    return {"quantization_config": {"quant_method": method, **values}}


def _compressed(form: str, weights: Change, activations: Change | None = None) -> Change:
    group = {"targets": ["Linear"], "weights": dict(weights), "input_activations": activations and dict(activations)}
    return _quantized(
        "compressed-tensors", format=form, config_groups={"group_0": group}, ignore=["lm_head"],
        quantization_status="compressed",
    )  # fmt: skip


_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "dynamic": False}
_CHANNEL = {"num_bits": 8, "strategy": "channel", "symmetric": True, "dynamic": False}
_TOKEN = {"num_bits": 8, "strategy": "token", "symmetric": True, "dynamic": True}

QUANTIZATIONS: dict[str, Change] = {
    "compressed-tensors, int4 in groups": _compressed("pack-quantized", _INT4),
    "compressed-tensors, fp8 by channel": _compressed(
        "float-quantized", {**_CHANNEL, "type": "float"}, {**_TOKEN, "type": "float"}
    ),
    "compressed-tensors, int8 weights and activations": _compressed(
        "int-quantized", {**_CHANNEL, "type": "int"}, {**_TOKEN, "type": "int"}
    ),
    "FP8 in blocks (`fp8`)": _quantized("fp8", fmt="e4m3", weight_block_size=[128, 128], activation_scheme="dynamic"),
    "FBGEMM FP8": _quantized("fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]),
    "AWQ, int4": _quantized("awq", bits=4, group_size=128, zero_point=True, version="gemm"),
    "GPTQ, int4": _quantized("gptq", bits=4, group_size=128, desc_act=False, sym=True),
    "GPTQ, int4, act-order": _quantized("gptq", bits=4, group_size=128, desc_act=True, sym=True),
    "bitsandbytes": _quantized("bitsandbytes", load_in_4bit=True),
    "HQQ": _quantized("hqq", quant_config={}),
    "Quanto": _quantized("quanto", weights="int8"),
}

REFUSED_SETTINGS: dict[str, Change] = {
    "a recurrent model": {"model_type": "mamba"},
    "an encoder-decoder": {"model_type": "t5"},

    "another activation": {"hidden_act": "gelu"},
    "attention in both directions": {
        "model_type": "gemma2", "use_bidirectional_attention": True, "hidden_activation": "gelu_pytorch_tanh",
    },
    "a multimodal model of such a text part": {"model_type": "llava", "text_config": {"model_type": "mamba"}},
    "sizes that do not divide": {"num_key_value_heads": 3},
}  # fmt: skip

REFUSED_FILES: dict[str, Mapping[str, str]] = {
    "weights in another format": {"pytorch_model.bin": ""},
    "shards that the index names and that are missing": {
        "model.safetensors.index.json": '{"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}'
    },
    "an index of something else": {"model.safetensors.index.json": "{}"},
    "a truncated file": {"model.safetensors": "x"},
    "a tokenizer that only a slow class reads": {"tokenizer.model": ""},
}
