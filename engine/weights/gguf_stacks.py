"""Experts that a converted GGUF file has in stacks: GPT-OSS's, as transformers has them, and all that are in MXFP4.

MXFP4 stays as it is, in the layout that GPT-OSS is published in. A file has a block's scale before its sixteen bytes,
and in byte j the numbers j and j + 16 of the block (`block_mxfp4` in `ggml-common.h` of llama.cpp); published are the
scales on their own, and in byte j the numbers 2j and 2j + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from thothy_ai.engine.models.quantized.gguf import MXFP4
from thothy_ai.engine.weights.gguf import GGUFFile
from thothy_ai.engine.weights.gguf_names import has_all_experts, places_of, stack_of, tensors_read
from thothy_ai.kernels.experts import MXFP4_BLOCK, Mxfp4

_PROJECTIONS = {"ffn_gate_exps": "gate_up_proj", "ffn_down_exps": "down_proj"}


def keeps_mxfp4(file: GGUFFile) -> bool:
    """Whether all experts are in MXFP4, and thus stay so: layers of several formats are not implemented."""
    weights = (name for name in tensors_read(file) if name.endswith(".weight"))
    kinds = {file.kind(name) for name in weights if stack_of(file, name) or has_all_experts(file, name)}
    return kinds == {MXFP4}


def mxfp4_experts(file: GGUFFile, name: str) -> Iterator[tuple[str, Tensor]]:
    """The stack that one of the file's stacks in MXFP4 begins, as `engine.models.experts` reads it.

    Rows of gate projections are before those of up projections; nothing for the latter alone.
    """
    layer, part = name.split(".")[1:3]
    if part in _PROJECTIONS:
        others = [name.replace(part, "ffn_up_exps")] if part == "ffn_gate_exps" else []
        parts = [laid_out(file.blocks(place)) for place in (name, *others)]
        stack = f"model.layers.{layer}.mlp.experts.{_PROJECTIONS[part]}"
        yield f"{stack}_blocks", torch.cat([each.blocks for each in parts], dim=1)
        yield f"{stack}_scales", torch.cat([each.scales for each in parts], dim=1)


def stacked(file: GGUFFile, name: str) -> Iterator[tuple[str, Tensor]]:
    """transformers' stack of this name: as plain numbers, transposed, or in MXFP4 with its scales."""
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
    """[E, N, ...] each -> [E, parts * N, ...]: the first row of each part, the second of each, and so on."""
    return torch.stack(list(parts), dim=2).flatten(1, 2)


def part_shape(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """The shape of each of the file's stacks that transformers' stack of this shape is made of."""
    if len(shape) == 3:
        experts, inputs, rows = shape
        return experts, rows // parts, inputs
    return shape[0], shape[1] // parts


def laid_out(stack: Tensor) -> Mxfp4:
    """[E, N, bytes of a row] uint8 -> blocks [E, N, K / 32, 16] and scales [E, N, K / 32]."""
    blocks = stack.unflatten(2, (-1, 1 + MXFP4_BLOCK // 2))
    numbers = torch.cat((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), dim=-1)
    return Mxfp4(numbers[..., ::2] | (numbers[..., 1::2] << 4), blocks[..., 0].contiguous())
