"""Corrupt files: each loads, or is refused by one typed error in one line, soon and in little memory."""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from gguf import GGUFValueType as Kind
from gguf.gguf_writer import GGUFValue
from safetensors.torch import load_file, save_file

from tests.support.gguf_files import write_gguf
from tests.support.naive_tokenizers import byte_alphabet
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import CHAT_TEMPLATE, make_tokenizer
from thothy_ai.engine.errors import ModelLoadError
from thothy_ai.engine.main import run_engine
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.text_tools import fast_tokenizer, text_tools
from thothy_ai.engine.weights.loader import LoadedModel, load_model

CPU = torch.device("cpu")
TOKENS = [5, 9, 1, 7, 7, 30]
CONTROL = ["<bos>", "<|end|>", "<unk>"]
MORE_MEMORY = 400 << 20  # bytes that a test's loads may take on top
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 32}
INF, NAN = float("inf"), float("nan")


def load(path: Path, cache: Path) -> LoadedModel:
    loaded = load_model(path, device=CPU, dtype=torch.float32, cache_dir=cache, max_context=4096)
    text_tools(fast_tokenizer(loaded.tokenizer, loaded.name))
    return loaded


def outcome(path: Path, cache: Path) -> torch.Tensor | str | None:
    """Logits of a model that loads, None if its context is too short for any; otherwise its error."""
    try:
        loaded = load(path, cache)
    except ModelLoadError as error:
        text = str(error)
        assert "\n" not in text
        assert len(text) < 1500
        assert path.stem in text
        return text
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if loaded.config.max_context < len(TOKENS):
        return None
    return PagedRun(loaded.model, 1, 32).step({0: TOKENS})[0]


@pytest.fixture(autouse=True)
def _in_little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MORE_MEMORY


# ---- GGUF files


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
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model("llama", tmp_path_factory.mktemp("hf"), vocab_size=700, **TINY)
    make_tokenizer().save_pretrained(folder)
    return folder


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
    "no KV heads": ("llama.attention.head_count_kv", 0, Kind.UINT32, "num_key_value_heads is 0"),
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
    for key, value, kind, message in (NAMED["no heads"], NAMED["a broken token"], NAMED["merges of nothing"]):
        path = changed(hf_folder, tmp_path / "one.gguf", key, value, kind)
        options = EngineOptions(url=f"unix://{tmp_path}/e.sock", model=path, cache_dir=tmp_path, device="cpu")
        with pytest.raises(SystemExit) as caught:
            run_engine(options)
        assert caught.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"thothy engine: {path}: "), message


# ---- Hugging Face folders

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


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a tensor in two shards": (_two_shards_with_a_tensor, "is in two shards"),
    "a truncated shard": (_cut_shard, "truncated or not a safetensors file"),
    "a missing shard": (lambda folder: max(folder.glob("model-*.safetensors")).unlink(), "shards are missing"),
    "not a number": (_not_a_number, "1 of .* values are NaN or infinite"),
    "larger than the machine": (_huge, "needs .* GB for weights in float32, and this machine has .* GB available"),
}


@pytest.mark.parametrize("fault", BAD)
def test_an_engine_refuses_a_bad_folder_in_one_line(
    fault: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    breaks, message = BAD[fault]
    folder = tiny_model("llama", tmp_path, vocab_size=700, max_shard_size="60KB", **TINY)
    make_tokenizer().save_pretrained(folder)
    breaks(folder)
    capfd.readouterr()
    options = EngineOptions(url=f"unix://{tmp_path}/e.sock", model=folder, device="cpu", check_weights=True)
    with pytest.raises(SystemExit) as caught:
        run_engine(options)
    assert caught.value.code == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "INFO" not in line]
    assert re.search(f"^thothy engine: .*{message}", line), line
