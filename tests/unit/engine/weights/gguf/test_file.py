"""GGUF files: every tensor type value for value, every architecture against transformers, every fault by name."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.support.block_formats import BLOCKS, mxfp4
from tests.support.gguf_files import add_tensor, finish, interleave, write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.file import QUANTIZATIONS, GGUFFile
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (25,), generator=torch.Generator().manual_seed(3)).tolist()
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def load(path: Path, cache: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(path, device=CPU, dtype=dtype, cache_dir=cache)


def logits(loaded: LoadedModel) -> Tensor:
    return PagedRun(loaded.model, 1, 32).step({0: TOKENS})[0]


def reference(folder: Path) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        out: Tensor = model(torch.tensor([TOKENS])).logits[0]
    return out


def one_tensor(path: Path, data: np.ndarray[Any, Any], kind: Quant) -> GGUFFile:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", data, raw_dtype=kind)
    finish(writer)
    return GGUFFile(path)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_block_formats_value_for_value(kind: Quant, tmp_path: Path) -> None:
    decode, size, halves = BLOCKS[kind]
    rng = random.Random(kind)
    blocks = []
    for _ in range(6):
        block = bytearray(rng.randbytes(size))
        for offset in halves:
            struct.pack_into("<e", block, offset, rng.uniform(-2, 2))
        blocks.append(bytes(block))
    data = np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(3, 2 * size)
    expected = torch.tensor([value for block in blocks for value in decode(block)], dtype=torch.float64).view(3, -1)
    got = one_tensor(tmp_path / "t.gguf", data, kind).tensor("t")
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, atol=1e-4, rtol=1e-6)


def test_mxfp4_value_for_value(tmp_path: Path) -> None:
    blocks = [bytes((exponent, *random.Random(exponent).randbytes(16))) for exponent in (0, 1, 2, 100, 127, 140)]
    data = np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(3, 2 * 17)
    expected = torch.tensor([value for block in blocks for value in mxfp4(block)]).view(3, -1)
    assert torch.equal(one_tensor(tmp_path / "t.gguf", data, Quant.MXFP4).tensor("t"), expected)


def test_plain_formats(tmp_path: Path) -> None:
    values = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    for kind, dtype in ((Quant.F32, torch.float32), (Quant.F16, torch.float16), (Quant.BF16, torch.bfloat16)):
        file = one_tensor(tmp_path / kind.name, gguf.quants.quantize(values.numpy(), kind), kind)
        assert torch.equal(file.tensor("t"), values.to(dtype).to(torch.float32))


def test_every_type_is_tested() -> None:
    assert {*BLOCKS, Quant.F32, Quant.F16, Quant.BF16, Quant.MXFP4} == QUANTIZATIONS


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("family", "architecture"), [("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")])
def test_architectures_match_transformers(family: str, architecture: str, tmp_path: Path, *, tied: bool) -> None:
    folder = tiny_model(family, tmp_path, tie_word_embeddings=tied)
    loaded = load(write_gguf(folder, tmp_path / "tiny.gguf", architecture=architecture), tmp_path / "cache")
    assert (loaded.config.family, loaded.name, loaded.tokenizer) == (family, "tiny", None)
    assert (loaded.config.tied_embeddings, loaded.config.eos_token_ids) == (tied, (2,))
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=0)


def test_llama_with_biases(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, attention_bias=True)
    loaded = load(write_gguf(folder, tmp_path / "tiny.gguf", architecture="llama"), tmp_path / "cache")
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=0)


def test_mistral_weights_come_as_llama(tmp_path: Path) -> None:
    folder = tiny_model("mistral", tmp_path)
    path = write_gguf(
        folder, tmp_path / "m.gguf", architecture="llama", extra=lambda writer: writer.add_sliding_window(100)
    )
    loaded = load(path, tmp_path / "cache")
    assert (loaded.config.family, loaded.config.max_context) == ("mistral", 256)
    assert loaded.config.layer_groups.windows == (100,)
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "kind", [Quant.F16, Quant.BF16, Quant.Q8_0, Quant.Q4_0, Quant.Q4_1, Quant.Q5_0, Quant.Q5_1], ids=lambda k: k.name
)
def test_quantized_weights_arrive_in_transformers_layout(kind: Quant, tmp_path: Path) -> None:
    sizes = {"hidden_size": 96, "intermediate_size": 64, "num_attention_heads": 6, "num_hidden_layers": 1}
    folder = tiny_model("llama", tmp_path, **sizes)
    path = write_gguf(folder, tmp_path / "tiny.gguf", architecture="llama", choose=lambda name: kind)
    load(path, tmp_path / "cache")
    converted = load_file(next((tmp_path / "cache").rglob("model.safetensors")))
    original = load_file(folder / "model.safetensors")
    assert converted.keys() == original.keys()
    for name, tensor in original.items():
        rounded = tensor
        if tensor.ndim > 1:
            rounded = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(tensor.numpy(), kind), kind))
        assert torch.equal(converted[name], rounded), name


@pytest.mark.parametrize("kind", [Quant.Q4_K, Quant.Q6_K], ids=lambda kind: kind.name)
def test_k_quants_load_and_run(kind: Quant, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8, "head_dim": 32}
    folder = tiny_model("llama", tmp_path, num_hidden_layers=1, **sizes)
    original = load_file(folder / "model.safetensors")
    size = BLOCKS[kind][1]
    block = bytearray(random.Random(1).randbytes(size))
    for offset in BLOCKS[kind][2]:
        struct.pack_into("<e", block, offset, 0.0001)
    values = torch.tensor(list(BLOCKS[kind][0](bytes(block))), dtype=torch.float32)

    def replace(writer: gguf.GGUFWriter) -> None:
        data = np.tile(np.frombuffer(bytes(block), dtype=np.uint8), (256, 1))
        writer.add_tensor("blk.0.ffn_down.weight", data, raw_dtype=kind)

    down = "model.layers.0.mlp.down_proj.weight"
    save_file({n: t for n, t in original.items() if n != down}, folder / "model.safetensors")
    loaded = load(write_gguf(folder, tmp_path / "k.gguf", architecture="llama", extra=replace), tmp_path / "cache")
    save_file(original | {down: values.expand(256, 256).contiguous()}, folder / "model.safetensors", {"format": "pt"})
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=1e-5)


def _llama3_factors(high: float, writer: gguf.GGUFWriter) -> None:
    """What convert_hf_to_gguf.py writes for Llama 3.1's scaling, or Llama 4's."""
    factors = []
    for i in range(8):
        frequency = LLAMA3["rope_theta"] ** (-2 * i / 16)
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / high:
            factors.append(1.0)
        elif wavelength > 8192 / 1:
            factors.append(32.0)
        else:
            smooth = (8192 / wavelength - 1) / (high - 1)
            factors.append(1 / ((1 - smooth) / 32 + smooth))
    add_tensor(writer, "rope_freqs.weight", np.array(factors, dtype=np.float32), Quant.F32)


@pytest.mark.parametrize("high", [4.0, 1.0])
def test_llama3_rope_factors(high: float, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, rope_parameters=LLAMA3 | {"high_freq_factor": high})
    path = write_gguf(folder, tmp_path / "l3.gguf", architecture="llama", extra=partial(_llama3_factors, high))
    loaded = load(path, tmp_path / "cache")
    assert loaded.config.rope.inverse_frequencies[-1] < 500000.0 ** (-14 / 16) / 31
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_rope_scaling(kind: str, tmp_path: Path) -> None:
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = 64
    folder = tiny_model("qwen2", tmp_path, rope_parameters=rope)

    def scaling(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)

    path = write_gguf(folder, tmp_path / "r.gguf", architecture="qwen2", extra=scaling)
    torch.testing.assert_close(logits(load(path, tmp_path / "cache")), reference(folder), atol=1e-4, rtol=0)


def test_conversion_happens_once_a_file_and_type(tmp_path: Path) -> None:
    folder, cache = tiny_model("llama", tmp_path), tmp_path / "cache"
    path = write_gguf(folder, tmp_path / "tiny.gguf", architecture="llama")
    load(path, cache)
    (converted,) = (cache / "gguf").iterdir()
    written = (converted / "model.safetensors").stat().st_mtime_ns
    load(path, cache)
    assert [*(cache / "gguf").iterdir()] == [converted]
    assert (converted / "model.safetensors").stat().st_mtime_ns == written
    load(path, cache, torch.bfloat16)
    assert len([*(cache / "gguf").iterdir()]) == 2
    write_gguf(tiny_model("llama", tmp_path / "other", seed=1), path, architecture="llama")
    changed = logits(load(path, cache))
    torch.testing.assert_close(changed, reference(tmp_path / "other" / "llama"), atol=1e-4, rtol=0)


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    folder, cache = tiny_model("llama", tmp_path), tmp_path / "cache"

    def unknown(writer: gguf.GGUFWriter) -> None:
        add_tensor(writer, "blk.0.attn_sinks.weight", np.ones(6, dtype=np.float32), Quant.F32)

    path = write_gguf(folder, tmp_path / "odd.gguf", architecture="llama", extra=unknown)
    with pytest.raises(UnsupportedModelError, match="attn_sinks"):
        load(path, cache)
    assert [*(cache / "gguf").iterdir()] == []


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama", tmp_path), tmp_path / "tiny.gguf", architecture="llama")
    (tmp_path / "cache").write_text("")
    with pytest.raises(ModelLoadError, match="can't be converted"):
        load(path, tmp_path / "cache")


def test_big_models_are_cached_in_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.engine.weights.gguf.convert._SHARD_BYTES", 60_000)
    folder = tiny_model("llama", tmp_path)
    loaded = load(write_gguf(folder, tmp_path / "tiny.gguf", architecture="llama"), tmp_path / "cache")
    assert len([*(tmp_path / "cache").rglob("model-*.safetensors")]) > 2
    torch.testing.assert_close(logits(loaded), reference(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize("keep", [0, 3, 20, 200, 900, 0.5, 0.999])
def test_truncated_anywhere(keep: float, tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama", tmp_path), tmp_path / "tiny.gguf", architecture="llama")
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelLoadError, match="truncated or not a GGUF file") as caught:
        load(path, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_another_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "picture.gguf"
    path.write_bytes(b"\x89PNG" * 100)
    with pytest.raises(ModelLoadError, match="not a GGUF file"):
        load(path, tmp_path / "cache")


def test_families_without_names_for_gguf_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("llama", tmp_path), tmp_path / "tiny.gguf", architecture="gemma")
    with pytest.raises(UnsupportedModelError, match=r"'gemma' is not implemented \(known: llama, qwen2, qwen3, "):
        load(path, tmp_path / "cache")


UNSUPPORTED: dict[str, tuple[Callable[[gguf.GGUFWriter], None], str]] = {
    "experts": (lambda w: w.add_expert_count(8), "expert_count"),
    "partial rotary": (lambda w: w.add_uint32("qwen2.rope.dimension_count", 8), "partial rotary"),
    "longrope": (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "longrope"),
    "window": (lambda w: w.add_sliding_window(64), "qwen2.attention.sliding_window 64 is"),
    "tokenizer": (lambda w: w.add_tokenizer_model("bert"), "'bert'"),
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
def test_what_is_not_implemented_is_named(feature: str, tmp_path: Path) -> None:
    extra, named = UNSUPPORTED[feature]
    path = write_gguf(tiny_model("qwen2", tmp_path), tmp_path / "tiny.gguf", architecture="qwen2", extra=extra)
    with pytest.raises(UnsupportedModelError, match=named):
        load(path, tmp_path / "cache")


def test_an_unknown_architecture(tmp_path: Path) -> None:
    path = write_gguf(tiny_model("qwen2", tmp_path), tmp_path / "tiny.gguf", architecture="gemma")
    with pytest.raises(UnsupportedModelError, match="'gemma' is not implemented"):
        load(path, tmp_path / "cache")


def test_an_unknown_tensor_type(tmp_path: Path) -> None:
    data = np.zeros((2, 2 * 84), dtype=np.uint8)
    with pytest.raises(UnsupportedModelError, match="'t' is Q2_K, which is not implemented"):
        one_tensor(tmp_path / "t.gguf", data, Quant.Q2_K)


def test_another_byte_order(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("token_embd.weight", np.ones((4, 32), np.float32))
    finish(writer)
    with pytest.raises(UnsupportedModelError, match=r"big\.gguf: big-endian, which is not implemented"):
        GGUFFile(tmp_path / "big.gguf")


def test_metadata_of_a_wrong_type(tmp_path: Path) -> None:
    folder = tiny_model("qwen2", tmp_path)

    def number(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("qwen2.rope.scaling.type", 3)

    path = write_gguf(folder, tmp_path / "tiny.gguf", architecture="qwen2", extra=number)
    with pytest.raises(ModelLoadError, match=r"'qwen2.rope.scaling.type' is a int, not a str"):
        load(path, tmp_path / "cache")


def test_missing_metadata(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "bare.gguf", "llama")
    add_tensor(writer, "token_embd.weight", np.zeros((4, 8), dtype=np.float32), Quant.F32)
    finish(writer)
    with pytest.raises(ModelLoadError, match=r"'llama.attention.head_count' is missing"):
        load(tmp_path / "bare.gguf", tmp_path / "cache")


def test_interleaving_is_a_permutation_that_tests_see() -> None:
    rows = np.arange(8)[:, None]
    assert interleave(rows, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
