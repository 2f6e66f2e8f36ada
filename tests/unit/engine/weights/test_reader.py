"""Reading ahead: tensors arrive whole, in bounded memory, and a missing shard stops the threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.loading import load_model
from tests.support.shards import write_shards
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.weights import huggingface, reader
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.engine.weights.reader import ParallelReader, PendingTensor
from thothy_ai.engine.weights.shards import StoredTensor

CPU = torch.device("cpu")


def test_tensors_arrive_whole_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 100 bytes, and little that may be read ahead: both end within tensors."""
    monkeypatch.setattr(reader, "PIECE_BYTES", 100)
    monkeypatch.setattr(huggingface, "_AHEAD_BYTES", {"cpu": 1000})
    types = [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.float8_e4m3fn, torch.bool]
    draw = torch.Generator().manual_seed(1)
    tensors = {f"t{at}": torch.randint(0, 2, (at % 7, 2 * at), generator=draw).to(types[at % 6]) for at in range(60)}
    tensors["number"] = torch.tensor(3.5)
    folder = write_shards(tmp_path, tensors, shards=4)
    order = sorted(tensors, key=lambda name: name[::-1])
    reported: list[tuple[int, int]] = []
    with SafetensorsFolder(folder, CPU, torch.float32, on_read=lambda *seen: reported.append(seen)) as source:
        source.expect({name: tuple(tensors[name].shape) for name in order})
        for name in [*order[40:], *order[:40]]:
            found = source.stored(name, *tensors[name].shape, dtype=tensors[name].dtype)
            assert found.dtype == tensors[name].dtype
            assert torch.equal(found.view(torch.uint8) if found.dim() else found, _bytes(tensors[name])), name
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert reported[-1] == (total, total)
    assert reported == sorted(reported)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dim() else tensor


def test_read_ahead_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    begin = ParallelReader.start

    def counted(self: ParallelReader, place: StoredTensor) -> PendingTensor:
        started.append(place.path.name)
        return begin(self, place)

    monkeypatch.setattr(ParallelReader, "start", counted)
    monkeypatch.setattr(huggingface, "_AHEAD_BYTES", {"cpu": 3000})
    folder = write_shards(tmp_path, {f"t{at:02}": torch.ones(250) for at in range(20)}, shards=3)
    with SafetensorsFolder(folder, CPU, torch.float32) as source:
        source.expect({f"t{at:02}": (250,) for at in range(20)})
        source.tensor("t00", 250)
        assert len(started) == 4, "the one that was asked for, and three of 1,000 bytes"
        for at in range(1, 20):
            source.tensor(f"t{at:02}", 250)
    assert len(started) == 20


def test_a_missing_shard_stops_the_threads(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, {"a": torch.ones(9), "b": torch.ones(9)}, shards=2)
    source = SafetensorsFolder(folder, CPU, torch.float32)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with source:
        source.tensor("a", 9)
        with pytest.raises(ModelLoadError, match="can't be read: No such file"):
            source.tensor("b", 9)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weights")]


def test_all_shards_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    asked: list[tuple[int, ...]] = []

    def refused(descriptor: int, *rest: int) -> None:
        asked.append((os.fstat(descriptor).st_ino, *rest))
        raise OSError("not on this file system")

    monkeypatch.setattr(os, "posix_fadvise", refused)
    load_model(folder, device=CPU, dtype=torch.float32)
    shards = {path.stat().st_ino for path in folder.glob("*.safetensors")}
    assert {inode for inode, *_ in asked} == shards
    assert len(shards) > 1
    assert {tuple(rest) for _, *rest in asked} == {(0, 0, os.POSIX_FADV_WILLNEED)}
