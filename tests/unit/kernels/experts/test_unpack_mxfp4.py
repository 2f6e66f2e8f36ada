"""MXFP4 unpacked by instructions: what these make of every byte, without a GPU."""

from __future__ import annotations

import re

import pytest
import torch

from thothy_ai.kernels.experts import Mxfp4
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4
from thothy_ai.kernels.triton.experts.unpack_mxfp4 import _FOUR_BYTES, arranged

MASK = 0xFFFF_FFFF


def bfloat16(bits: int) -> float:
    return torch.tensor(bits << 16, dtype=torch.int64).to(torch.int32).view(torch.float32).item()


def rounded(value: float) -> int:
    """Its bits; a product that a bfloat16 does not hold exactly fails."""
    bits = torch.tensor(value, dtype=torch.float32).view(torch.int32).item() & MASK
    assert bits & 0xFFFF == 0
    return bits >> 16


def run(asm: str, registers: dict[str, int]) -> dict[str, int]:
    """The few instructions that it has."""
    for line in filter(None, (part.strip(" {}\n") for part in asm.split(";"))):
        name, *operands = re.split(r"[ ,]+", line)
        if name == ".reg":
            continue
        target, *sources = operands
        first, *rest = (registers[each] if each in registers else int(each, 0) for each in sources)
        match name:
            case "prmt.b32":
                whole = (rest[0] << 32) | first
                picked = [(whole >> (8 * ((rest[1] >> (4 * place)) & 7))) & 0xFF for place in range(4)]
                result = sum(byte << (8 * place) for place, byte in enumerate(picked))
            case "shr.b32":
                result = first >> rest[0]
            case "shl.b32":
                result = (first << rest[0]) & MASK
            case "and.b32":
                result = first & rest[0]
            case "or.b32":
                result = first | rest[0]
            case "mul.bf16x2":
                halves = [
                    rounded(bfloat16((first >> at) & 0xFFFF) * bfloat16((rest[0] >> at) & 0xFFFF)) for at in (0, 16)
                ]
                result = halves[0] | (halves[1] << 16)
            case _:
                pytest.fail(name)
        registers[target] = result
    return registers


@pytest.mark.parametrize("exponent", [1, 100, 127, 128])
@pytest.mark.parametrize("first", range(0, 256, 4))
def test_every_byte(first: int, exponent: int) -> None:
    """Even numbers come first, two in a word; then the odd ones."""
    packed = [(first + each) % 256 for each in range(4)]
    word = sum(byte << (8 * place) for place, byte in enumerate(packed))
    scale = (exponent + 126) << 7
    done = run(_FOUR_BYTES.value, {"$4": word, "$5": scale | (scale << 16), "$6": scale | (scale << 16)})
    blocks = torch.tensor(packed * 4, dtype=torch.uint8).view(1, 1, 16)
    wanted = dequantize_mxfp4(Mxfp4(blocks, torch.tensor([[[exponent]]], dtype=torch.uint8)))[0, 0, :8]
    words = [done[f"${index}"] for index in range(4)]
    even, odd = (
        [bfloat16((word >> at) & 0xFFFF) for word in pair for at in (0, 16)] for pair in (words[:2], words[2:])
    )
    assert even == wanted[::2].tolist()
    assert odd == wanted[1::2].tolist()


def test_what_one_thread_multiplies_lies_side_by_side() -> None:
    """Numbers 2q and 2q + 1 of each eight, which share a byte."""
    blocks = torch.arange(16, dtype=torch.uint8).repeat(1, 2, 1)
    scales = torch.tensor([[[120], [121]]], dtype=torch.uint8)
    found = arranged(Mxfp4(blocks, scales))
    assert found.blocks[0, 0].tolist() == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]
    assert found.scales.tolist() == [[[120, 121]]]
