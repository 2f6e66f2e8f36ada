"""Writes GGUF files: from a Hugging Face folder, the way llama.cpp's converter lays them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
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

_INTERLEAVED = {"llama", "granite", "smollm3"}  # which the converter permutes for
_ONE_PLUS = {"gemma2", "gemma3"}
_MAX_LAYERS = 64


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
        renamed = gguf_name(name, architecture)
        part = renamed.split(".")[-2]
        rows = interleave(tensor, heads[part]) if architecture in _INTERLEAVED and part in heads else tensor
        rows = rows + 1 if architecture in _ONE_PLUS and name.endswith("norm.weight") else rows
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


def gguf_name(name: str, architecture: str) -> str:
    """The name that the `gguf` package's tables give a tensor of transformers."""
    if name == "lm_head.weight":
        return "output.weight"  # also where the converter leaves it out, since such models are tied
    found = _table(architecture).get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, f"{architecture} has no {name}"
    return found


@cache
def _table(architecture: str) -> gguf.TensorNameMap:
    kind = next(kind for kind, its in gguf.MODEL_ARCH_NAMES.items() if its == architecture)
    return gguf.get_tensor_name_map(kind, _MAX_LAYERS)


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
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(int(config["head_dim"] * rope.get("partial_rotary_factor", 1.0)))
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        if config.get(key) is not None:
            add(np.uint32(config[key]).item())
