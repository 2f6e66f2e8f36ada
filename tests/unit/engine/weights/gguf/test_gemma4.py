"""GGUF files of Gemma 4, whose layers differ, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant

from tests.support.gguf_files import Array, add_tensor, write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import GEMMA4_EXPERTS, GEMMA4_SMALL, reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.gemma4 import Gemma4
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(3)).tolist()
KINDS: dict[str, dict[str, Any]] = {
    "31B": {},
    "26B": GEMMA4_EXPERTS,
    "E4B": GEMMA4_SMALL | {"num_global_key_value_heads": None, "use_double_wide_mlp": False},
    "E2B": GEMMA4_SMALL | {"num_global_key_value_heads": None, "final_logit_softcapping": None},
}
SHARED = "gemma4.attention.shared_kv_layers"
Change = Callable[[gguf.GGUFWriter], None]
RENAMED = (
    (r"model\.layers\.(\d+)\.layer_scalar", r"model.layers.\1.layer_scalar.weight"),
    (r"model\.layers\.(\d+)\.router\.scale", r"blk.\1.ffn_gate_inp.scale"),
    (r"model\.layers\.(\d+)\.router\.per_expert_scale", r"blk.\1.ffn_down_exps.scale"),
    (r"(.*\.experts\.\w+_proj)", r"\1.weight"),
)


def converted(tensors: dict[str, Array], _: dict[str, Any]) -> dict[str, Array]:
    """Under the names that the converter gives them."""
    found = {}
    for name, tensor in tensors.items():
        for pattern, replacement in RENAMED:
            if re.fullmatch(pattern, name):
                name = re.sub(pattern, replacement, name)  # noqa: PLW2901  as the converter does
        found[name] = tensor
    return found


def metadata(config: dict[str, Any]) -> Change:
    """What the converter writes of such a configuration."""
    windowed = [kind == "sliding_attention" for kind in config["layer_types"]]
    shared, own = config.get("num_kv_shared_layers") or 0, config["per_layer_config"]
    full = next(own.get(str(index), {}) for index, windowed_too in enumerate(windowed) if not windowed_too)
    size, heads = full.get("head_dim", config["head_dim"]), full.get("num_key_value_heads")

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(windowed)
        writer.add_shared_kv_layers(shared)
        writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
        for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
            add(size)
        for add in (writer.add_key_length_swa, writer.add_value_length_swa, writer.add_rope_dimension_count_swa):
            add(config["head_dim"])
        writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
        if cap := config["final_logit_softcapping"]:
            writer.add_final_logit_softcapping(cap)
        if config["enable_moe_block"]:
            writer.add_expert_count(config["num_experts"])
            writer.add_expert_used_count(config["top_k_experts"])
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        if config["use_double_wide_mlp"]:
            inner, own = config["intermediate_size"], len(windowed) - shared
            writer.add_feed_forward_length([inner] * own + [2 * inner] * shared)
        if heads is not None:
            writer.add_head_count_kv([config["num_key_value_heads"] if each else heads for each in windowed])
        turned = int(size * config["rope_parameters"]["full_attention"]["partial_rotary_factor"] / 2)
        divisors = np.array([1.0] * turned + [1e30] * (size // 2 - turned), dtype=np.float32)
        add_tensor(writer, "rope_freqs.weight", divisors, Quant.F32)

    return write


def write(
    kind: str,
    tmp_path: Path,
    change: Change = lambda _: None,
    choose: Callable[[str], Quant] = lambda _: Quant.F32,
    **sizes: Any,
) -> tuple[Path, Path]:
    """The model's folder, and its file."""
    folder = tiny_model("gemma4_text", tmp_path, **(KINDS[kind] | sizes))
    describe = metadata(json.loads((folder / "config.json").read_text()))

    def extra(writer: gguf.GGUFWriter) -> None:
        describe(writer)
        change(writer)

    return folder, write_gguf(
        folder, tmp_path / "g.gguf", architecture="gemma4", extra=extra, convert=converted, choose=choose
    )


def load(path: Path, tmp_path: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache", weights=weights)


@pytest.mark.parametrize("kind", KINDS)
def test_files_match_transformers(kind: str, tmp_path: Path) -> None:
    folder, path = write(kind, tmp_path)
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    loaded = load(path, tmp_path)
    family = loaded.config.architecture
    assert isinstance(family, Gemma4)
    assert (family.experts is not None, family.keys_only) == (kind == "26B", kind in {"31B", "26B"})
    got = PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0]
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["31B", "26B", "E4B"])
def test_quantized_files_stand_for_the_same_numbers_packed_or_not(kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "global_head_dim": 32}
    sizes |= {"moe_intermediate_size": 32} if kind == "26B" else {}
    sizes |= {"hidden_size_per_layer_input": 32} if kind == "E4B" else {}
    quantized = re.compile(r"(blk\..*|per_layer.*)\.weight")
    folder, path = write(
        kind, tmp_path, choose=lambda name: Quant.Q8_0 if quantized.fullmatch(name) else Quant.F32, **sizes
    )
    plain, stored = load(path, tmp_path), load(path, tmp_path, "stored")
    assert stored.model.num_bytes < plain.model.num_bytes
    [unpacked] = (
        each
        for each in (tmp_path / "cache" / "gguf").iterdir()
        if '"quantization_config"' not in (each / "config.json").read_text()
    )
    with torch.no_grad():
        expected, original = (reference_model(each)(torch.tensor([TOKENS])).logits[0] for each in (unpacked, folder))
    for loaded, atol in ((plain, 1e-4), (stored, 1e-3)):
        torch.testing.assert_close(PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0], expected, atol=atol, rtol=0)
    assert 0 < (expected - original).norm() < 0.3 * original.norm()


def test_keys_and_values_that_nothing_reads_are_left_out(tmp_path: Path) -> None:
    """Published files have those of layers that read another layer's."""

    def needless(writer: gguf.GGUFWriter) -> None:
        for name, rows in (("attn_k", 32), ("attn_v", 32)):
            add_tensor(writer, f"blk.3.{name}.weight", np.ones((rows, 48), dtype=np.float32), Quant.F32)
        add_tensor(writer, "blk.3.attn_k_norm.weight", np.ones(16, dtype=np.float32), Quant.F32)

    _, path = write("E4B", tmp_path, needless)
    load(path, tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (lambda writer: writer.add_head_count_kv([2, 1, 2]), ModelLoadError, "layers of one type must be alike"),
        (lambda writer: writer.add_feed_forward_length([80, 80, 120]), ModelLoadError, "layers of one type must"),
        (lambda writer: writer.add_head_count_kv([2, 1]), ModelLoadError, "a list of 3 numbers, one of each layer"),
        (lambda writer: writer.add_feed_forward_length([80]), ModelLoadError, "a list of 3 numbers, one of each layer"),
        (lambda writer: writer.add_int32(SHARED, -1), ModelLoadError, "shared_kv_layers is -1, of 3 layers"),
        (lambda writer: writer.add_shared_kv_layers(3), ModelLoadError, "shared_kv_layers is 3, of 3 layers"),
        (lambda writer: writer.add_value_length_swa(8), UnsupportedModelError, "value_length_swa 8 is not"),
        (lambda writer: writer.add_rope_dimension_count_swa(8), UnsupportedModelError, "dimension_count_swa 8 is not"),
        (lambda writer: writer.add_attn_logit_softcapping(8.0), UnsupportedModelError, "attn_logit_softcapping 8.0"),
        (lambda writer: writer.add_sliding_window_pattern([True] * 3), ModelLoadError, "both types must be there"),
    ],
)
def test_what_contradicts_itself_or_is_not_implemented_is_named(
    change: Change, error: type[Exception], named: str, tmp_path: Path
) -> None:
    _, path = write("31B", tmp_path, change)
    with pytest.raises(error, match=named):
        load(path, tmp_path)
