"""Corrupt GGUF files: each loads, or is refused by one typed error in one line, soon and in little memory."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from gguf import GGUFValueType as Kind
from gguf.gguf_writer import GGUFValue
from safetensors.torch import load_file, save_file

from tests.support.corruption import INF, NAN, load, outcome
from tests.support.gguf_files import write_gguf
from tests.support.naive_tokenizers import byte_alphabet
from tests.support.tiny_tokenizer import CHAT_TEMPLATE
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.main import run_engine

CONTROL = ["<bos>", "<|end|>", "<unk>"]


def with_tokenizer(writer: gguf.GGUFWriter, change: Callable[[gguf.GGUFWriter], None] = lambda _: None) -> None:
    shown = byte_alphabet()
    tokens = [*CONTROL, *shown, "th", "the"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["t h", "th e"])
    writer.add_unk_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    change(writer)


@pytest.fixture(scope="module")
def whole(hf_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "tiny.gguf"
    return write_gguf(hf_folder, path, architecture="llama", extra=with_tokenizer).read_bytes()


@pytest.fixture(scope="module")
def logits(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    path = tmp_path_factory.mktemp("logits") / "tiny.gguf"
    path.write_bytes(whole)
    found = outcome(path, path.parent / "cache")
    assert isinstance(found, torch.Tensor)
    return found


def header_bytes(whole: bytes, tmp_path: Path) -> int:
    path = tmp_path / "whole.gguf"
    path.write_bytes(whole)
    return int(gguf.GGUFReader(path).data_offset)


def test_random_bytes_in_the_header(whole: bytes, logits: torch.Tensor, tmp_path: Path) -> None:
    """What loads nevertheless gives logits of the right shape: a number that is another number can't be seen."""
    end, refused = header_bytes(whole, tmp_path), 0
    for seed in range(150):
        pick, content = random.Random(seed), bytearray(whole)
        for _ in range(pick.randint(1, 3)):
            at = pick.randrange(end)
            content[at] = pick.choice([0, 0xFF, content[at] ^ (1 << pick.randrange(8)), pick.randrange(256)])
        path = tmp_path / "corrupt.gguf"
        path.write_bytes(content)
        found = outcome(path, tmp_path / "cache")
        refused += isinstance(found, str)
        if isinstance(found, torch.Tensor):
            assert found.shape == logits.shape
    assert refused > 50


def test_random_cuts(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    for seed in range(30):
        path.write_bytes(whole[: random.Random(seed).randrange(len(whole))])
        assert isinstance(outcome(path, tmp_path / "cache"), str)


ABSURD: list[tuple[Any, Kind]] = [
    (0, Kind.UINT32), (-1, Kind.INT32), (2**32 - 1, Kind.UINT32), (2**63, Kind.UINT64), (3, Kind.UINT32),
    (0.0, Kind.FLOAT32), (NAN, Kind.FLOAT32), (INF, Kind.FLOAT32), (-1.0, Kind.FLOAT32), (True, Kind.BOOL),
    ("", Kind.STRING), ("x" * 5000, Kind.STRING), (b"\xff\xfe\xff", Kind.STRING), ([1, 2], Kind.ARRAY),
    (["a", "b"], Kind.ARRAY),
]  # fmt: skip


def keys_of(whole: bytes, tmp_path: Path) -> list[str]:
    path = tmp_path / "keys.gguf"
    path.write_bytes(whole)
    return [name for name in gguf.GGUFReader(path).fields if not name.startswith("GGUF.")]


def changed(folder: Path, path: Path, key: str, value: Any, kind: Kind | None) -> Path:
    """The file with another value; without the key if there is no kind."""

    def change(writer: gguf.GGUFWriter) -> None:
        if kind is None:
            writer.kv_data[0].pop(key)
        else:
            sub = Kind.get_type(value[0]) if kind is Kind.ARRAY else None
            writer.kv_data[0][key] = GGUFValue(value, kind, sub)

    return write_gguf(folder, path, architecture="llama", extra=partial(with_tokenizer, change=change))


def test_every_key_with_absurd_values(hf_folder: Path, whole: bytes, logits: torch.Tensor, tmp_path: Path) -> None:
    pick, path = random.Random(1), tmp_path / "absurd.gguf"
    for key in keys_of(whole, tmp_path):
        for value, kind in [(None, None), *pick.sample(ABSURD, 5)]:
            changed(hf_folder, path, key, value, kind)
            found = outcome(path, tmp_path / "cache")
            if isinstance(found, torch.Tensor):
                assert found.shape == logits.shape, (key, value)


NAMED: dict[str, tuple[str, Any, Kind | None, str]] = {
    "no heads": ("llama.attention.head_count", 0, Kind.UINT32, "head_count' is 0"),
    "heads below none": ("llama.attention.head_count", -4, Kind.INT32, "head_count' is -4"),
    "no KV heads": ("llama.attention.head_count_kv", 0, Kind.UINT32, "head_count_kv' is 0"),
    "fewer layers than there are": ("llama.block_count", 1, Kind.UINT32, "block_count is 1, but .* layer 1"),
    "more layers": ("llama.block_count", 3, Kind.UINT32, "block_count is 3, but .* layer 2 are missing"),
    "layers without end": ("llama.block_count", 2**32 - 1, Kind.UINT32, "block_count is 4294967295"),
    "no context": ("llama.context_length", 0, Kind.UINT32, "context_length' is 0"),
    "a broken string": ("tokenizer.chat_template", b"{{ \xff }}", Kind.STRING, "chat_template' is not UTF-8"),
    "a broken token": ("tokenizer.ggml.tokens", [b"a\xff"] * 261, Kind.ARRAY, "tokens' is not UTF-8"),
    "fewer types than tokens": ("tokenizer.ggml.token_type", [1, 1], Kind.ARRAY, "261 tokens but 2 token types"),
    "a narrower layer": ("llama.feed_forward_length", 31, Kind.UINT32, r"ffn_.* has shape \(32, 32\), the metadata"),
    "merges of nothing": ("tokenizer.ggml.merges", ["q q"], Kind.ARRAY, "can't be converted"),
    "no end": ("tokenizer.ggml.eos_token_id", None, None, "no end-of-text token is known"),
}


@pytest.mark.parametrize("fault", NAMED)
def test_what_is_wrong_is_named(fault: str, hf_folder: Path, tmp_path: Path) -> None:
    key, value, kind, message = NAMED[fault]
    path = changed(hf_folder, tmp_path / "named.gguf", key, value, kind)
    with pytest.raises(ModelLoadError, match=message) as caught:
        load(path, tmp_path / "cache")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [*(tmp_path / "cache").glob("gguf/*")], "nothing is kept of it"


@pytest.mark.parametrize("bytes_", [2**61, 2**40, 10**7])
@pytest.mark.parametrize("kind", [Kind.UINT8, Kind.UINT32, Kind.STRING, Kind.ARRAY])
def test_absurd_lengths_of_arrays(whole: bytes, kind: Kind, bytes_: int, tmp_path: Path) -> None:
    """A file may be large, and a length that fits it absurd all the same."""
    at = whole.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 4
    path = tmp_path / "long.gguf"
    content = bytearray(whole)
    struct.pack_into("<IQ", content, at, kind, bytes_)
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(len(content) + 2 * 10**7)
    assert "not a GGUF file" in str(outcome(path, tmp_path / "cache"))


def without(name: str, tmp_path: Path, hf_folder: Path) -> Path:
    folder = tmp_path / "without"
    shutil.copytree(hf_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_missing_tensor_is_missing_from_the_file(hf_folder: Path, tmp_path: Path) -> None:
    folder = without("model.layers.0.mlp.up_proj.weight", tmp_path, hf_folder)
    path = write_gguf(folder, tmp_path / "less.gguf", architecture="llama", extra=with_tokenizer)
    found = outcome(path, tmp_path / "cache")
    assert found == f"{path}: tensor 'blk.0.ffn_up.weight' is missing"


def test_an_engine_tells_in_one_line(hf_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, value, kind, message = NAMED["merges of nothing"]
    path = changed(hf_folder, tmp_path / "one.gguf", key, value, kind)
    options = EngineOptions(url=f"unix://{tmp_path}/e.sock", model=path, cache_dir=tmp_path, device="cpu")
    with pytest.raises(SystemExit) as caught:
        run_engine(options)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"thothy engine: {path}: ")
    assert message in line
