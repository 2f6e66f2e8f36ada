"""Tensors reach the GPU as they are in the files, however many threads and buffers they went through."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.shards import write_shards
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.engine.weights.reader import PIECE_BYTES

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize("expected", [True, False])
def test_every_byte_arrives(tmp_path: Path, *, expected: bool) -> None:
    """Among kernels that write to memory which the allocator hands out again."""
    sizes = [PIECE_BYTES // 2 + 3, 5, 3 * PIECE_BYTES + 7, PIECE_BYTES, 1, 0, 40 * PIECE_BYTES] + [
        PIECE_BYTES // 8
    ] * 60
    tensors = {f"t{number}": torch.randn(size).bfloat16() for number, size in enumerate(sizes)}
    folder = write_shards(tmp_path, tensors, shards=5)
    with SafetensorsFolder(folder, CUDA, torch.bfloat16) as source:
        if expected:
            source.expect({name: tuple(tensor.shape) for name, tensor in tensors.items()})
        got = {}
        for name, tensor in tensors.items():
            scratch = torch.full((1 << 25,), 7.0, device=CUDA)
            got[name] = torch.cat([source.tensor(name, *tensor.shape), scratch[:1].bfloat16()])
            del scratch
    for name, tensor in tensors.items():
        assert torch.equal(got[name][:-1].cpu(), tensor), name
