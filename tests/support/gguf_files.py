"""Writes GGUF files: from a Hugging Face folder, the way llama.cpp's converter lays them out."""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.support.block_formats import BLOCKS

Array = NDArray[Any]
Choose = Callable[[str], Quant]
Extra = Callable[[gguf.GGUFWriter], None]
Convert = Callable[[dict[str, Array], dict[str, Any]], dict[str, Array]]

_EXPERT = re.compile(r"(.*\.experts)\.\d+\.(.*)")
_INTERLEAVED = {"llama", "granite", "granitehybrid", "smollm3", "mistral3"}  # which the converter permutes for
_ONE_PLUS = {"gemma2", "gemma3"}
_MAX_LAYERS = 64


def write_gguf(
    folder: Path,
    path: Path,
    *,
    architecture: str,
    choose: Choose | None = None,
    extra: Extra | None = None,
    convert: Convert = lambda tensors, _: tensors,
) -> Path:
    """Write the model in `folder`; `choose` says each tensor's type by its name in the file, `extra` adds metadata.

    `convert`: what the converter makes of the tensors of such a model, under names of its tables.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    _add_metadata(writer, config)
    if extra is not None:
        extra(writer)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in _with_stacks(_apart(convert(load_file(folder / "model.safetensors"), config))).items():
        renamed = gguf_name(name, architecture)
        part = renamed.split(".")[-2]
        rows = interleave(tensor, heads[part]) if architecture in _INTERLEAVED and part in heads else tensor
        rows = rows + 1 if architecture in _ONE_PLUS and name.endswith("norm.weight") else rows
        matrix = tensor.ndim > 1 and renamed.endswith(".weight")
        add_tensor(writer, renamed, rows, choose(renamed) if choose and matrix else Quant.F32)
    finish(writer)
    return path


def _apart(tensors: dict[str, Array]) -> dict[str, Array]:
    """GPT-OSS's and Llama 4's stacks with gate and up apart; names with ends that the package's tables know."""
    found: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if name.removesuffix("_bias").endswith(("experts.gate_up_proj", "experts.down_proj")):
            found |= _stacks(name, tensor)
        else:
            renamed = name.replace("e_score_correction_bias", "e_score_correction.bias")
            found[f"{renamed}.weight" if renamed.endswith(".sinks") else renamed] = tensor
    return found


def _stacks(name: str, tensor: Array) -> dict[str, Array]:
    """Weights [E, rows, inputs] or biases [E, rows]."""
    prefix, _, stack = name.removesuffix("_bias").rpartition(".")
    end, rows = ("bias", tensor) if name.endswith("_bias") else ("weight", tensor.swapaxes(1, 2))
    gated = stack == "gate_up_proj"
    half = rows.shape[1] // 2
    gate, up = (rows[:, :half], rows[:, half:]) if "feed_forward" in name else (rows[:, ::2], rows[:, 1::2])
    parts = {"gate_proj": gate, "up_proj": up} if gated else {"down_proj": rows}
    return {f"{prefix}.{part}.{end}": np.ascontiguousarray(each) for part, each in parts.items()}


def _with_stacks(tensors: dict[str, Array]) -> dict[str, Array]:
    """Experts' matrices as one tensor, as the converter merges them."""
    stacks: dict[str, list[Array]] = defaultdict(list)
    for name in sorted(tensors, key=lambda name: [int(part) for part in re.findall(r"\d+", name)]):
        if found := _EXPERT.fullmatch(name):
            stacks[f"{found[1]}.{found[2]}"].append(tensors[name])
    plain = {name: tensor for name, tensor in tensors.items() if not _EXPERT.fullmatch(name)}
    return plain | {name: np.stack(parts) for name, parts in stacks.items()}


def add_tensor(writer: gguf.GGUFWriter, name: str, tensor: Array, kind: Quant) -> None:
    """Random blocks for a K-quant, to which the `gguf` package quantizes nothing."""
    if kind.name.endswith("_K"):
        rows = random_blocks(kind, tensor.size // tensor.shape[-1], tensor.shape[-1], seed=zlib.crc32(name.encode()))
        writer.add_tensor(name, rows.reshape(*tensor.shape[:-1], -1), raw_dtype=kind)
        return
    writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str, architecture: str) -> str:
    """The name that the `gguf` package's tables give a tensor of transformers."""
    if name.startswith("blk."):  # it has its name already
        return name
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
    writer.add_block_count(config.get("num_hidden_layers") or len(config["layers_block_type"]))
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    elif rms := config.get("norm_eps") or config.get("layer_norm_epsilon"):
        writer.add_layer_norm_rms_eps(rms)
    else:
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    rope = config.get("rope_parameters") or {"rope_theta": 10000.0}
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(int(config["head_dim"] * rope.get("partial_rotary_factor", 1.0)))
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        if config.get(key) is not None:
            add(np.uint32(config[key]).item())


def random_blocks(kind: Quant, rows: int, inputs: int, seed: int = 0) -> Array:
    """A matrix [rows, bytes] of a type, any bits within finite scales: the weights are as large as a small model's."""
    _, size, halves = BLOCKS[kind]
    rng = np.random.default_rng(seed)
    values = 256 if kind.name.endswith("_K") else 32
    blocks = rng.integers(0, 256, (rows, inputs // values, size), dtype=np.uint8)
    for offset, largest in zip(halves, _LARGEST[kind], strict=True):
        scales = rng.uniform(-largest, largest, (rows, inputs // values, 1)).astype(np.float16)
        blocks[:, :, offset : offset + 2] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


_LARGEST: dict[Quant, tuple[float, ...]] = {
    Quant.Q4_0: (0.01,), Quant.Q4_1: (0.01, 0.05), Quant.Q5_0: (0.005,), Quant.Q5_1: (0.005, 0.05),
    Quant.Q8_0: (0.001,),
    Quant.Q4_K: (2e-4, 1e-3), Quant.Q5_K: (1e-4, 1e-3), Quant.Q6_K: (5e-5,),
}  # fmt: skip


def split_gguf(path: Path, folder: Path, count: int) -> list[Path]:
    """The file in parts, as llama.cpp's gguf-split writes them: the first has the metadata, and each its number."""
    folder.mkdir()
    reader = gguf.GGUFReader(path)
    parts = [folder / f"{path.stem}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    for number, part in enumerate(parts):
        writer = gguf.GGUFWriter(part, "llama")
        if number:
            writer.kv_data[0].pop("general.architecture")
        else:
            _copy_metadata(reader, writer)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number::count]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        finish(writer)
    return parts


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kinds = field.types
            writer.add_key_value(field.name, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
