"""The tensors of a GGUF file under transformers' names and in its layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import Tensor

from thothy_ai.engine.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.family import GGUFNames
from thothy_ai.engine.models.quantized.gguf import BLOCK_FORMATS, ENDING
from thothy_ai.engine.weights import inventory
from thothy_ai.engine.weights.gguf import GGUFFile

_NAMES = {  # by architecture, and whether layers have experts: Mixtral's files are Llama's
    (names.architecture, bool(names.experts)): names for family in FAMILIES.values() if (names := family.gguf)
}
ARCHITECTURES = tuple(dict.fromkeys(architecture for architecture, _ in _NAMES))

ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
_SETTINGS = {ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS}  # tensors that are part of the configuration
_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_KEPT = {"token_embd", "ffn_gate_inp"}  # of which rows are looked up, and which routers multiply exactly


def names_of(file: GGUFFile) -> GGUFNames:
    """The names of the file's architecture, which must be one of ARCHITECTURES."""
    sparse = bool(file.get(".expert_count", int))
    return _NAMES.get((file.architecture, sparse)) or _NAMES[file.architecture, not sparse]


def model_type_of(file: GGUFFile) -> str:
    """Of the first family whose files have these names: Mistral's are Llama's."""
    key = _key(names_of(file))
    return next(name for name, family in FAMILIES.items() if family.gguf and _key(family.gguf) == key)


def _key(names: GGUFNames) -> tuple[str, bool]:
    return names.architecture, bool(names.experts)


def require_tensors(file: GGUFFile, expected: Mapping[str, tuple[int, ...]]) -> None:
    """ModelLoadError unless the file's tensors are the expected ones: shapes by transformers' names."""
    stored = [name for name in file.names if name not in _SETTINGS]
    names = {name: place for place in stored for name in _transformers_names(file, place)}
    inventory.require_tensors(
        file.path,
        list(names.values()),
        {names.get(name) or _gguf_name(file, name) for name in expected},
        tied="output.weight" not in file.names,
    )
    for name, shape in expected.items():
        found = file.shape(names[name])
        found = found[1:] if _is_stack(file, names[name]) else found
        if found != shape:
            raise ModelLoadError(f"{file.path}: tensor {names[name]!r} has shape {found}, the metadata wants {shape}")


def packed_layers(file: GGUFFile) -> dict[str, list[str]]:
    """The linear layers whose weights can be kept in the file's blocks, by type: transformers' names."""
    layers: dict[str, list[str]] = {}
    for name in file.names:
        if _is_packable(file, name):
            [renamed] = _transformers_names(file, name)
            layers.setdefault(file.kind(name), []).append(renamed.removesuffix(".weight"))
    return layers


def tensors(file: GGUFFile, *, packed: bool = False) -> Iterator[tuple[str, Tensor]]:
    """All tensors under transformers' names and in its layout: float32 or, if they can be `packed`, blocks uint8."""
    for name in file.names:
        if name in _SETTINGS:
            continue
        renamed = _transformers_names(file, name)
        if packed and _is_packable(file, name):
            yield renamed[0].removesuffix(".weight") + ENDING, _laid_out(file, name, file.blocks(name))
        elif _is_stack(file, name):
            yield from zip(renamed, file.tensor(name), strict=True)
        else:
            yield renamed[0], _laid_out(file, name, file.tensor(name))


def _laid_out(file: GGUFFile, name: str, tensor: Tensor) -> Tensor:
    """As transformers has it."""
    names, part = names_of(file), name.split(".")[-2]
    heads = file.positive(".attention.head_count")
    rows = {"attn_q": heads, "attn_k": file.get(".attention.head_count_kv", int, heads)}
    if names.interleaved and part in rows:
        return _half_split(tensor, rows[part])
    return tensor - 1.0 if names.one_plus and part.endswith("norm") else tensor


def _half_split(tensor: Tensor, heads: int) -> Tensor:
    """Undo the interleaving of rotary pairs in query and key rows."""
    rotated = tensor.view(heads, tensor.shape[0] // heads // 2, 2, *tensor.shape[1:])
    return rotated.transpose(1, 2).reshape(tensor.shape)


def _is_packable(file: GGUFFile, name: str) -> bool:
    """A matrix of a linear layer, in a type that can be kept."""
    matrix = len(file.shape(name)) == 2 and name.split(".")[-2] not in _KEPT
    return matrix and name.endswith(".weight") and file.kind(name) in BLOCK_FORMATS


def _is_stack(file: GGUFFile, name: str) -> bool:
    """Whether it has the matrices of all experts of a layer."""
    return name.split(".")[-2] in names_of(file).experts


def _transformers_names(file: GGUFFile, name: str) -> list[str]:
    """One name, or one for each expert of a stack."""
    layer, names = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name), names_of(file)
    if layer and layer[2] in names.layer:
        return [f"model.layers.{layer[1]}.{names.layer[layer[2]]}.{layer[3]}"]
    if layer and layer[2] in names.experts:
        form = f"model.layers.{layer[1]}.{names.experts[layer[2]]}.{layer[3]}"
        return [form.format(expert) for expert in range(_experts(file, name))]
    stem, _, kind = name.rpartition(".")
    if stem in _TOP and kind == "weight":
        return [f"{_TOP[stem]}.weight"]
    raise UnsupportedModelError(f"{file.path}: tensor {name!r} has no place in architecture {file.architecture!r}")


def _experts(file: GGUFFile, name: str) -> int:
    """As many as the metadata says; ModelLoadError if the stack has others."""
    said, shape = file.positive(".expert_count"), file.shape(name)
    if len(shape) != 3 or shape[0] != said:
        raise ModelLoadError(f"{file.path}: tensor {name!r} has shape {shape}, the metadata wants {said} experts")
    return said


def _gguf_name(file: GGUFFile, name: str) -> str:
    """Of a tensor under transformers' name."""
    stem, _, kind = name.rpartition(".")
    top = {theirs: ours for ours, theirs in _TOP.items()}
    if stem in top:
        return f"{top[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    names = names_of(file)
    parts = {theirs: ours for ours, theirs in {**names.layer, **names.experts}.items()}
    form = re.sub(r"\.experts\.\d+\.", ".experts.{}.", part)
    return f"blk.{layer}.{parts[form]}.{kind}"
