"""The tensors of a GGUF file under transformers' names and in its layout.

Experts in MXFP4 stay quantized, but in GPT-OSS's published layout. A file has a block's scale before its sixteen bytes,
and in byte j the numbers j and j + 16 of the block (`block_mxfp4` in `ggml-common.h` of llama.cpp). The published
layout has the scales in a separate tensor, and in byte j the numbers 2j and 2j + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.models.quantized.gguf import BLOCK_FORMATS, ENDING, METHOD, MXFP4
from thothy_ai.engine.weights import inventory
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.names import (
    has_all_experts,
    joined_of,
    kv_heads,
    names_of,
    places_of,
    stack_of,
    tensors_read,
    transformers_names,
)
from thothy_ai.engine.weights.shards import StoredTensor
from thothy_ai.kernels.experts import MXFP4_BLOCK, Mxfp4

_KEPT = {"token_embd", "ffn_gate_inp"}  # never packed: embeddings are looked up by row, and routers multiply exactly


def require_tensors(file: GGUFFile, expected: Mapping[str, tuple[int, ...]]) -> None:
    """ModelLoadError unless the file's tensors are the `expected` ones, whose shapes are by transformers' names."""
    read = tensors_read(file)
    for name in read:
        transformers_names(file, name)  # raises for a tensor without a place
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in expected.items():
        places = places_of(file, name)
        for place in places:
            if joined_of(file, place) is not None:  # its shape is compared after joining
                shapes[place] = file.shape(place) if place in file.names else ()
            elif stack_of(file, place) is None:
                shapes[place] = shape
            elif len(shape) == 3:  # the file's stacks are parts of transformers', transposed
                experts, inputs, rows = shape
                shapes[place] = experts, rows // len(places), inputs
            else:
                shapes[place] = shape[0], shape[1] // len(places)
    inventory.require_tensors(file.path, read, shapes.keys(), tied="output.weight" not in file.names)
    for place, shape in shapes.items():
        found = file.shape(place)[has_all_experts(file, place) :]
        changed = place.split(".", 2)[-1] in names_of(file).changed
        if found != shape and not (changed and math.prod(found) == math.prod(shape)):
            raise ModelLoadError(f"{file.path}: tensor {place!r} has shape {found}, the metadata wants {shape}")


def whole_stacks(file: GGUFFile) -> dict[str, StoredTensor]:
    """Experts that both the file and transformers have in one tensor, for the names that a model is built from."""
    whole = names_of(file).whole
    stacks = (name for name in tensors_read(file) if name.endswith("_exps.weight") and name.split(".", 2)[-1] in whole)
    return {
        transformers_names(file, name)[0]: StoredTensor(file.path, 0, 0, torch.float32, file.shape(name))
        for name in stacks
    }


def quantization(file: GGUFFile, *, packed: bool) -> dict[str, object] | None:
    """The `quantization_config` of the weights that stay quantized when the file is converted; None if none do.

    With `packed`, linear layers stay quantized in the file's blocks.
    """
    layers: dict[str, list[str]] = {}  # transformers' names by the type of their blocks
    for name in tensors_read(file) if packed else ():
        if _is_packable(file, name):
            [renamed] = transformers_names(file, name)
            layers.setdefault(file.kind(name), []).append(renamed.removesuffix(".weight"))
    experts = MXFP4 if keeps_mxfp4(file) else None
    return {"quant_method": METHOD, "types": layers, "experts": experts} if layers or experts else None


def tensors(file: GGUFFile, *, packed: bool = False) -> Iterator[tuple[str, Tensor]]:
    """All tensors under transformers' names and in its layout: float32 or, if they stay quantized, uint8 blocks.

    Experts in MXFP4 always stay quantized; linear layers do if `packed`.
    """
    keeps = keeps_mxfp4(file)
    for name in tensors_read(file):
        renamed = transformers_names(file, name)
        if stack_of(file, name) is not None:
            if name == places_of(file, renamed[0])[0]:
                yield from stacked(file, renamed[0])
        elif (joined := joined_of(file, name)) is not None:
            places = places_of(file, renamed[0])
            if name == places[0]:
                yield renamed[0], joined.join([file.tensor(place) for place in places], file.positive)
        elif keeps and has_all_experts(file, name):
            yield from mxfp4_experts(file, name)
        elif packed and _is_packable(file, name):
            yield renamed[0].removesuffix(".weight") + ENDING, _laid_out(file, name, file.blocks(name))
        elif has_all_experts(file, name):
            yield from zip(renamed, file.tensor(name), strict=True)
        else:
            yield renamed[0], _laid_out(file, name, file.tensor(name))


def _laid_out(file: GGUFFile, name: str, tensor: Tensor) -> Tensor:
    names, part = names_of(file), name.split(".")[-2]
    if (change := names.changed.get(name.split(".", 2)[-1])) is not None:
        return change(tensor, file.positive)
    heads = file.positive(".attention.head_count")
    rows = {"attn_q": heads, "attn_k": kv_heads(file)[0]}
    if names.interleaved and part in rows:  # rotary pairs lie side by side in the file
        pairs = tensor.view(rows[part], tensor.shape[0] // rows[part] // 2, 2, *tensor.shape[1:])
        return pairs.transpose(1, 2).reshape(tensor.shape)
    return tensor - 1.0 if names.one_plus and part.endswith("norm") else tensor


def _is_packable(file: GGUFFile, name: str) -> bool:
    """Whether the tensor is a linear layer's matrix of a type that can stay quantized."""
    if joined_of(file, name) is not None:
        return False
    kept = {*_KEPT, *names_of(file).unpacked}
    matrix = len(file.shape(name)) == 2 and name.split(".")[-2] not in kept
    return matrix and name.endswith(".weight") and file.kind(name) in BLOCK_FORMATS


_PROJECTIONS = {"ffn_gate_exps": "gate_up_proj", "ffn_down_exps": "down_proj"}


def keeps_mxfp4(file: GGUFFile) -> bool:
    """Whether experts stay in MXFP4: all must be in it, since formats can't be mixed, and they must have gates."""
    names = names_of(file)
    if not (names.stacks or "ffn_gate_exps" in names.experts):
        return False
    weights = (name for name in tensors_read(file) if name.endswith(".weight"))
    kinds = {file.kind(name) for name in weights if stack_of(file, name) or has_all_experts(file, name)}
    return kinds == {MXFP4}


def mxfp4_experts(file: GGUFFile, name: str) -> Iterator[tuple[str, Tensor]]:
    """The MXFP4 stack that begins with this tensor of the file, in the form that `engine.models.experts` reads.

    Rows of gate projections come before rows of up projections, so a tensor of up projections yields nothing.
    """
    layer, part = name.split(".")[1:3]
    if part in _PROJECTIONS:
        others = [name.replace(part, "ffn_up_exps")] if part == "ffn_gate_exps" else []
        parts = [laid_out(file.blocks(place)) for place in (name, *others)]
        place, _ = names_of(file).experts[part].split("{}")
        stack = f"model.layers.{layer}.{place.replace('block_sparse_moe', 'mlp')}{_PROJECTIONS[part]}"  # Mixtral's
        yield f"{stack}_blocks", torch.cat([each.blocks for each in parts], dim=1)
        yield f"{stack}_scales", torch.cat([each.scales for each in parts], dim=1)


def stacked(file: GGUFFile, name: str) -> Iterator[tuple[str, Tensor]]:
    """transformers' stack of this name: plain and transposed, or in MXFP4 with its scales."""
    places = places_of(file, name)
    if places[0].endswith(".bias"):
        yield name, by_turns([file.tensor(place) for place in places])
    elif keeps_mxfp4(file):
        parts = [laid_out(file.blocks(place)) for place in places]
        yield f"{name}_blocks", by_turns([part.blocks for part in parts])
        yield f"{name}_scales", by_turns([part.scales for part in parts])
    else:
        yield name, by_turns([file.tensor(place) for place in places]).transpose(1, 2)


def by_turns(parts: Sequence[Tensor]) -> Tensor:
    """[E, N, ...] each -> [E, parts * N, ...], alternating: the first row of each part, the second of each, …."""
    return torch.stack(list(parts), dim=2).flatten(1, 2)


def laid_out(stack: Tensor) -> Mxfp4:
    """[E, N, bytes of a row] uint8 -> blocks [E, N, K / 32, 16] and scales [E, N, K / 32]."""
    blocks = stack.unflatten(2, (-1, 1 + MXFP4_BLOCK // 2))
    numbers = torch.cat((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), dim=-1)
    return Mxfp4(numbers[..., ::2] | (numbers[..., 1::2] << 4), blocks[..., 0].contiguous())
