"""GGUF's quantized weights kept in their blocks, against the same files dequantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from gguf import quants
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.block_formats import BLOCKS
from tests.support.dequantized import log_probabilities
from tests.support.gguf_files import Array, Choose, random_blocks, write_gguf
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import EngineError, ModelLoadError, UnsupportedModelError
from thothy_ai.engine.model_check.sizing import weight_bytes
from thothy_ai.engine.models.quantized.gguf import BLOCK_FORMATS, ENDING, GGUFBlocks
from thothy_ai.engine.models.quantized.grouped import GroupedWeight
from thothy_ai.engine.models.quantized.methods import read_quantization
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.reference.grouped import dequantized

CPU = torch.device("cpu")
KINDS = pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
SIZES = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
EXACT = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}  # in others float16 rounds products of scales
TOKENS = torch.randint(3, 131, (80,), generator=torch.Generator().manual_seed(1)).tolist()


class Blocks:
    """A source of one packed weight."""

    device = CPU

    def __init__(self, data: Array) -> None:
        self._data = torch.from_numpy(data.copy())

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        assert (name, shape, dtype) == (f"layer{ENDING}", tuple(self._data.shape), torch.uint8)
        return self._data


def read(kind: Quant, data: Array, inputs: int) -> GroupedWeight:
    return GGUFBlocks(BLOCK_FORMATS[kind.name]).read(Blocks(data), "layer", len(data), inputs)  # type: ignore[arg-type]


def load(path: Path, weights: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(path, device=CPU, dtype=dtype, weights=weights, cache_dir=path.parent / "cache")


def model_of(family: str, folder: Path, choose: Choose) -> Path:
    return write_gguf(
        tiny_model(family, folder, **SIZES), folder / "m.gguf", architecture=family, choose=choose,
        extra=lambda writer: writer.add_sliding_window(30) if family == "phi3" else None,
    )  # fmt: skip


def folder_of(path: Path) -> Path:
    """The converted folder in which weights are packed."""
    (found,) = (each for each in (path.parent / "cache" / "gguf").iterdir() if "quantization" in config_of(each))
    return found


def config_of(folder: Path) -> str:
    return (folder / "config.json").read_text()


def apart(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm())


def test_every_quantized_type_can_be_kept() -> None:
    assert {kind.name for kind in BLOCKS} == set(BLOCK_FORMATS)


@KINDS
def test_blocks_stand_for_what_the_package_makes_of_them(kind: Quant) -> None:
    data = random_blocks(kind, 24, 512)
    weight = read(kind, data, 512)
    wanted = torch.from_numpy(quants.dequantize(data, kind))
    if kind.name in EXACT:
        assert torch.equal(dequantized(weight.ints), wanted)
    else:
        rounding = 2**-10 * wanted.abs().amax(1, keepdim=True)
        assert bool(((dequantized(weight.ints) - wanted).abs() <= rounding).all())
        assert not torch.equal(dequantized(weight.ints), torch.zeros_like(wanted))


@KINDS
def test_memory(kind: Quant) -> None:
    bits = {"Q4_0": 4.5, "Q4_1": 5, "Q4_K": 5, "Q8_0": 8.5, "Q5_0": 8.5, "Q5_1": 9, "Q5_K": 9, "Q6_K": 9}
    assert read(kind, random_blocks(kind, 64, 1024), 1024).ints.num_bytes * 8 / (64 * 1024) == bits[kind.name]


@KINDS
def test_scales_that_are_not_finite_are_refused(kind: Quant) -> None:
    data = random_blocks(kind, 4, 512)
    for offset in BLOCKS[kind][2]:
        broken = data.copy()
        broken[2, offset : offset + 2] = np.array([np.nan], dtype=np.float16).view(np.uint8)
        with pytest.raises(ValueError, match="layer: scales are NaN, infinite or too large"):
            read(kind, broken, 512)


@KINDS
def test_log_probabilities_are_those_of_the_dequantized_file(kind: Quant, tmp_path: Path) -> None:
    path = model_of("llama", tmp_path, lambda name: kind)
    packed, plain = load(path, "stored"), load(path, "auto")
    got, wanted = (log_probabilities(loaded.model, TOKENS) for loaded in (packed, plain))
    assert apart(got, wanted) < (1e-5 if kind.name in EXACT else 2e-3)
    assert float(wanted.exp().amax()) > 2 / 131, "the model prefers something"
    assert packed.model.num_bytes < plain.model.num_bytes * 0.6


def mixed(name: str) -> Quant:
    """As `_M` files have them, and some that are plain."""
    if "attn_k" in name or "blk.1.ffn_up" in name:
        return Quant.F16
    if "attn_v" in name or "ffn_down" in name or name in ("output.weight", "token_embd.weight"):
        return Quant.Q6_K
    return Quant.Q4_K if "blk.0" in name else Quant.Q4_0


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3"])
def test_types_can_be_mixed_and_some_weights_plain(family: str, tmp_path: Path) -> None:
    path = model_of(family, tmp_path, mixed)
    packed, plain = load(path, "stored"), load(path, "auto")
    got, wanted = (log_probabilities(loaded.model, TOKENS) for loaded in (packed, plain))
    assert apart(got, wanted) < 3e-3
    config = model_config(folder_of(path))
    assert weight_bytes(config, "stored", CPU, torch.float32) == packed.model.num_bytes


@pytest.mark.parametrize("kind", [Quant.Q4_1, Quant.Q4_K, Quant.Q6_K], ids=lambda kind: kind.name)
def test_greedy_tokens_are_those_of_transformers(kind: Quant, tmp_path: Path) -> None:
    """Which has weights rounded as little as ours are."""
    path = model_of("llama", tmp_path, lambda name: kind)
    loaded = load(path, "stored")
    prompts = random_prompts(loaded.config.vocab_size)
    load(path, "auto")
    (plain,) = (each for each in (tmp_path / "cache" / "gguf").iterdir() if "quantization" not in config_of(each))
    expected = generate(plain, prompts, NEW_TOKENS, CPU)
    for preempted, chunked in ((True, False), (False, True)):
        Oracle(loaded, prompts, expected).check(
            options(preempted=preempted, chunked=chunked, overlap=chunked, prefix_cache=preempted)
        )


def test_a_file_without_quantized_weights_is_loaded_as_ever(tmp_path: Path) -> None:
    path = model_of("llama", tmp_path, lambda name: Quant.F16)
    assert load(path, "stored").config.quantization is None


def test_a_broken_scale_is_one_line(tmp_path: Path) -> None:
    path = model_of("llama", tmp_path, lambda name: Quant.Q8_0)
    load(path, "stored")
    file = folder_of(path) / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.mlp.down_proj.blocks"][3, 1] = 0x7E
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"m\.gguf: model\.layers\.1\.mlp\.down_proj: scales are NaN") as caught:
        load(path, "stored")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("types", "kind", "says"),
    [
        (None, ModelLoadError, "gguf: types is None"),
        ({"Q2_K": ["a"]}, UnsupportedModelError, "gguf: type 'Q2_K' is not implemented"),
        ({"Q4_0": "a"}, ModelLoadError, "expected a list of names, got 'a'"),
    ],
)
def test_a_configuration_that_is_wrong(types: object, kind: type[EngineError], says: str) -> None:
    with pytest.raises(kind, match=says):
        read_quantization({"quant_method": "gguf", "types": types})
