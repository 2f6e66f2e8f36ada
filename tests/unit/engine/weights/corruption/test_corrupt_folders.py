"""Corrupt Hugging Face folders: each loads, or is refused by one typed error in one line, soon and in little memory."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.corruption import INF, NAN, TINY, outcome
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.main import run_engine

VALUES: list[Any] = [
    None, 0, -1, 1, 7, 2**31, 2**63, 1e300, 0.5, NAN, INF, "x", "", [], [3], ["x"], {}, {"x": 1}, True, False,
]  # fmt: skip
_ABSENT = object()


def faults(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key, old in config.items():
        for value in (_ABSENT, *VALUES):
            if isinstance(old, dict) and value is _ABSENT:
                yield from ({**config, key: inner} for inner in faults(old))
            yield {k: v for k, v in config.items() if k != key} | ({} if value is _ABSENT else {key: value})


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_every_value_of_a_folder(
    name: str, family: str, hf_folder: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    folder = hf_folder
    if family != "llama":
        folder = tiny_model(family, tmp_path, vocab_size=700, **TINY)
        make_tokenizer().save_pretrained(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    expected = outcome(copy, tmp_path / "cache")
    assert isinstance(expected, torch.Tensor)
    config = json.loads((copy / name).read_text())
    made = [*faults(config)]
    refused = 0
    for fault in random.Random(3).sample(made, min(len(made), 120)):
        (copy / name).write_text(json.dumps(fault))
        found = outcome(copy, tmp_path / "cache")
        refused += isinstance(found, str)
        if isinstance(found, torch.Tensor):
            assert found.shape == expected.shape, fault
    assert refused or name != "config.json"


def test_random_bytes_in_the_header_of_the_weights(hf_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(hf_folder, copy)
    whole, refused = (copy / "model.safetensors").read_bytes(), 0
    end = 8 + struct.unpack_from("<Q", whole)[0]
    for seed in range(150):
        pick, content = random.Random(seed), bytearray(whole)
        for _ in range(pick.randint(1, 3)):
            at = pick.randrange(end)
            content[at] = pick.choice([0, 0xFF, content[at] ^ (1 << pick.randrange(8)), pick.randrange(256), 0x39])
        (copy / "model.safetensors").write_bytes(content)
        refused += isinstance(outcome(copy, tmp_path / "cache"), str)
    assert refused > 100


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b'"x"', b"null", b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_files_of_something_else(name: str, content: bytes, hf_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(hf_folder, copy)
    (copy / name).write_bytes(content)
    outcome(copy, tmp_path / "cache")


def _sharded(folder: Path) -> Path:
    model = tiny_model("llama", folder, vocab_size=700, max_shard_size="60KB", **TINY)
    make_tokenizer().save_pretrained(model)
    return model


def _two_shards_with_a_tensor(folder: Path) -> None:
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    save_file(load_file(first) | load_file(second), second)


def _cut_shard(folder: Path) -> None:
    shard = max(folder.glob("model-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])


def _not_a_number(folder: Path) -> None:
    shard = max(folder.glob("model-*.safetensors"))
    tensors = load_file(shard)
    min(tensors.values(), key=torch.Tensor.numel).view(-1)[0] = NAN
    save_file(tensors, shard)


def _huge(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    layers = {"num_hidden_layers": 1000, "hidden_size": 16384, "intermediate_size": 65536}
    (folder / "config.json").write_text(json.dumps(config | layers))
    (folder / "random_weights").touch()


SHARDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a tensor in two": (_two_shards_with_a_tensor, "is in two shards"),
    "a truncated one": (_cut_shard, "truncated or not a safetensors file"),
    "a missing one": (lambda folder: max(folder.glob("model-*.safetensors")).unlink(), "shards are missing"),
}
BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "not a number": (_not_a_number, "1 of .* values are NaN or infinite"),
    "larger than the machine": (_huge, "needs .* GB for weights in float32, and this machine has .* GB available"),
}


@pytest.mark.parametrize("fault", SHARDS)
def test_shards_that_make_no_whole(fault: str, tmp_path: Path) -> None:
    breaks, message = SHARDS[fault]
    folder = _sharded(tmp_path)
    breaks(folder)
    assert re.search(message, str(outcome(folder, tmp_path / "cache")))


@pytest.mark.parametrize("fault", BAD)
def test_an_engine_refuses_a_bad_folder_in_one_line(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    breaks, message = BAD[fault]
    folder = _sharded(tmp_path)
    breaks(folder)
    capfd.readouterr()
    options = EngineOptions(url=f"unix://{tmp_path}/e.sock", model=folder, device="cpu", check_weights=True)
    with pytest.raises(SystemExit) as caught:
        run_engine(options)
    assert caught.value.code == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "INFO" not in line]
    assert re.search(f"^thothy engine: .*{message}", line), line
