"""Writes GGUF files: from a Hugging Face folder, the way llama.cpp's converter lays them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[Any]
Choose = Callable[[str], Quant]
Extra = Callable[[gguf.GGUFWriter], None]

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(
    folder: Path, path: Path, *, architecture: str, choose: Choose | None = None, extra: Extra | None = None
) -> Path:
    """Write the model in `folder`; `choose` says each tensor's type by its name in the file, `extra` adds metadata."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    _add_metadata(writer, config)
    if extra is not None:
        extra(writer)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in load_file(folder / "model.safetensors").items():
        renamed = gguf_name(name)
        part = renamed.split(".")[-2]
        rows = interleave(tensor, heads[part]) if architecture == "llama" and part in heads else tensor
        add_tensor(writer, renamed, rows, choose(renamed) if choose and tensor.ndim > 1 else Quant.F32)
    finish(writer)
    return path


def add_tensor(writer: gguf.GGUFWriter, name: str, tensor: Array, kind: Quant) -> None:
    writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_NAMES[part]}.{kind}"
    return f"{_NAMES[stem]}.{kind}"


def interleave(tensor: Array, heads: int) -> Array:
    """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py."""
    return (
        tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
    )


def _add_metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(config["head_dim"])
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        if config.get(key) is not None:
            add(np.uint32(config[key]).item())
