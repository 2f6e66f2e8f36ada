"""GGUF files of mixtures of experts, as llama.cpp's converter writes them: a tensor for all experts of a layer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from safetensors.torch import load_file, save_file

from tests.support import gguf_files
from tests.support.gguf_files import Array, add_tensor, write_gguf
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.sweep import spread
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import EngineError, ModelLoadError, UnsupportedModelError
from thothy_ai.engine.model_check.sizing import weight_bytes
from thothy_ai.engine.models.llama4 import Llama4
from thothy_ai.engine.models.query_growth import QueryGrowth
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
Metadata = Callable[[gguf.GGUFWriter], None]


def counts(experts: int, used: int = 2, inner: int | None = None) -> Metadata:
    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
        if inner is not None:
            writer.add_expert_feed_forward_length(inner)

    return write


def glm4_moe(writer: gguf.GGUFWriter) -> None:
    counts(8, used=3, inner=256)(writer)
    writer.add_expert_shared_count(2)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_group_count(4)
    writer.add_expert_group_used_count(2)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_weights_scale(1.5)
    writer.add_expert_weights_norm(True)


def gpt_oss(writer: gguf.GGUFWriter) -> None:
    counts(6, inner=256)(writer)
    writer.add_sliding_window(12)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(64)
    writer.add_rope_scaling_yarn_beta_fast(8.0)
    writer.add_rope_scaling_yarn_beta_slow(1.0)


def llama4(writer: gguf.GGUFWriter) -> None:
    counts(5, used=1, inner=256)(writer)
    writer.kv_data[0]["llama4.feed_forward_length"].value = 80
    writer.add_interleave_moe_layer_step(2)


class Case(NamedTuple):
    """A family's file: its architecture, its metadata, and the model's sizes (whole K-quant blocks)."""

    architecture: str
    metadata: Metadata
    sizes: dict[str, Any]


LLAMA4 = {  # what files do not say; the last of four layers has no positions
    "num_hidden_layers": 4, "no_rope_layers": None, "moe_layers": None, "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
CASES = {
    "qwen3_moe": Case("qwen3moe", counts(6, inner=256), {"moe_intermediate_size": 256, "mlp_only_layers": []}),
    "mixtral": Case("llama", counts(5), {"intermediate_size": 256}),
    "glm4_moe": Case("glm4moe", glm4_moe, {"moe_intermediate_size": 256}),
    "gpt_oss": Case("gpt-oss", gpt_oss, {"intermediate_size": 256}),
    "llama4_text": Case("llama4", llama4, {"intermediate_size": 256, **LLAMA4}),
}
KINDS = (Quant.F32, Quant.Q8_0, Quant.Q4_0, Quant.Q4_K, Quant.Q5_K, Quant.Q6_K)


def write(family: str, tmp_path: Path, kind: Quant, metadata: Metadata | None = None) -> Path:
    case = CASES[family]
    sizes = {
        "hidden_size": 256,
        "num_attention_heads": 16,
        "num_hidden_layers": 2,
        "tie_word_embeddings": False,
        **case.sizes,
    }
    folder = tiny_model(family, tmp_path, initializer_range=0.08, **sizes)
    return write_gguf(
        folder,
        tmp_path / f"{family}.gguf",
        architecture=case.architecture,
        choose=lambda name: kind if "exps" in name or "attn" in name else Quant.F32,
        extra=metadata or case.metadata,
    )


def changed(metadata: Metadata, key: str, value: Any) -> Metadata:
    """The same with another value of a key, of whichever type, or without it."""

    def write(writer: gguf.GGUFWriter) -> None:
        metadata(writer)
        name = f"{writer.arch}.{key}"
        writer.kv_data[0].pop(name, None)
        if value is not None:
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))

    return write


def load(path: Path, tmp_path: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache", weights=weights)


def with_stacks(folder: Path) -> Path:
    """A folder that transformers reads: of Llama 4, it has experts in transposed stacks alone."""
    tensors = load_file(folder / "model.safetensors")
    firsts = [name for name in tensors if name.endswith("feed_forward.experts.0.gate_proj.weight")]
    if not firsts:
        return folder
    for prefix in (name.removesuffix("0.gate_proj.weight") for name in firsts):
        count = sum(name.startswith(prefix) and name.endswith(".gate_proj.weight") for name in tensors)
        gate, up, down = (
            torch.stack([tensors.pop(f"{prefix}{expert}.{name}.weight").t() for expert in range(count)])
            for name in ("gate_proj", "up_proj", "down_proj")
        )
        tensors |= {f"{prefix}gate_up_proj": torch.cat((gate, up), 2), f"{prefix}down_proj": down.contiguous()}
    made = folder.parents[2] / "stacks"
    shutil.copytree(folder, made)
    save_file(tensors, made / "model.safetensors", {"format": "pt"})
    return made


@pytest.mark.parametrize(("kind", "family"), spread(KINDS, [*CASES]), ids=lambda each: getattr(each, "name", each))
def test_greedy_tokens_are_those_of_transformers(kind: Quant, family: str, tmp_path: Path) -> None:
    loaded = load(write(family, tmp_path, kind), tmp_path)
    assert loaded.config.family == family
    [plain] = (tmp_path / "cache" / "gguf").iterdir()  # what the file stands for, by the gguf package
    prompts = random_prompts(loaded.config.vocab_size)
    reference = with_stacks(plain) if kind is not Quant.F32 else tmp_path / family
    expected = generate(reference, prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True))


@pytest.mark.parametrize("family", CASES)
def test_linear_layers_stay_quantized_beside_plain_experts(family: str, tmp_path: Path) -> None:
    path = write(family, tmp_path, Quant.Q4_0)
    plain, stored = load(path, tmp_path), load(path, tmp_path, "stored")
    attention = plain.config.num_layers * (256 * (256 + 2 * 32) + 256 * 256)  # numbers
    assert plain.model.num_bytes - stored.model.num_bytes == attention * (32 - 4.5) / 8
    assert weight_bytes(stored.config, "stored", CPU, torch.float32) == stored.model.num_bytes
    prompts = random_prompts(stored.config.vocab_size)
    [folder] = (path for path in (tmp_path / "cache" / "gguf").iterdir() if "blocks" not in _names(path))
    expected = generate(with_stacks(folder), prompts, NEW_TOKENS, CPU)
    Oracle(stored, prompts, expected).check(options(preempted=True, chunked=False, overlap=False, prefix_cache=False))


def _names(folder: Path) -> str:
    return (folder / "config.json").read_text().replace('"quantization_config"', "blocks")


@pytest.mark.parametrize(
    ("family", "metadata", "error", "says"),
    [
        ("qwen3_moe", counts(5, inner=256), ModelLoadError, r"has shape \(6, .* the metadata wants 5 experts"),
        ("qwen3_moe", counts(6), ModelLoadError, "qwen3moe.expert_feed_forward_length"),
        ("qwen3_moe", counts(6, used=7, inner=256), UnsupportedModelError, "7 of 6 experts"),
        ("qwen3_moe", counts(6, inner=128), ModelLoadError, r"has shape \(256, 256\), the metadata wants \(128, 256\)"),
        ("qwen3_moe", lambda _: None, ModelLoadError, "qwen3moe.expert_count"),
        ("mixtral", counts(8), ModelLoadError, "the metadata wants 8 experts"),
        ("glm4_moe", changed(glm4_moe, "expert_gating_func", 1), UnsupportedModelError, "expert_gating_func 1 is not"),
        ("glm4_moe", changed(glm4_moe, "expert_weights_norm", 1), ModelLoadError, "weights_norm' is a .*, not a bool"),
        ("glm4_moe", changed(glm4_moe, "expert_weights_scale", "2"), ModelLoadError, "expert_weights_scale' is '2'"),
        ("glm4_moe", changed(glm4_moe, "expert_group_count", 3), UnsupportedModelError, "8 experts in 3 groups"),
        (
            "glm4_moe",
            changed(glm4_moe, "leading_dense_block_count", 2),
            ModelLoadError,
            r"blk\.1\.ffn_\w+\.weight' is miss",
        ),
        ("glm4_moe", changed(glm4_moe, "expert_shared_count", None), ModelLoadError, "glm4moe.expert_shared_count"),
        ("glm4_moe", changed(glm4_moe, "nextn_predict_layers", 2), ModelLoadError, "2 of 2 layers predict further"),
        (
            "gpt_oss",
            changed(gpt_oss, "attention.sliding_window", None),
            ModelLoadError,
            "gpt-oss.attention.sliding_win",
        ),
        ("gpt_oss", changed(gpt_oss, "attention.sliding_window", 0), ModelLoadError, "sliding_window is 0"),
        (
            "gpt_oss",
            changed(gpt_oss, "expert_feed_forward_length", 128),
            ModelLoadError,
            r"has shape \(6, 256, 256\), the metadata wants \(6, (128, 256|256, 128)\)",
        ),
        ("gpt_oss", changed(gpt_oss, "expert_count", 5), ModelLoadError, r"the metadata wants \(5, 256"),
        ("gpt_oss", changed(gpt_oss, "rope.scaling.factor", float("nan")), ModelLoadError, "its metadata is nan"),
        ("gpt_oss", changed(gpt_oss, "rope.scaling.yarn_attn_factor", 1.5), UnsupportedModelError, "yarn_attn_factor"),
        ("gpt_oss", changed(gpt_oss, "rope.scaling.yarn_beta_fast", "8"), ModelLoadError, "yarn_beta_fast' is a str"),
        (
            "llama4_text",
            changed(llama4, "attention.sliding_window", 512),
            UnsupportedModelError,
            "chunks of 512 tokens",
        ),
        (
            "llama4_text",
            changed(llama4, "interleave_moe_layer_step", None),
            ModelLoadError,
            "interleave_moe_layer_step",
        ),
        (
            "llama4_text",
            changed(llama4, "interleave_moe_layer_step", 1),
            ModelLoadError,
            r"blk\.0\.ffn_\w+\.weight' is",
        ),
        ("mixtral", lambda _: None, UnsupportedModelError, "ffn_gate_inp.weight' has no place|ffn_.*_exps.weight'"),
    ],
)
def test_metadata_that_does_not_fit_is_named(
    family: str, metadata: Metadata, error: type[EngineError], says: str, tmp_path: Path
) -> None:
    path = write(family, tmp_path, Quant.F32, metadata)
    with pytest.raises(error, match=says):
        load(path, tmp_path)


@pytest.mark.parametrize("architecture", ["dots1", "deepseek4"])
def test_other_mixtures_are_refused_by_name(architecture: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", architecture)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=f"architecture '{architecture}' is not implemented"):
        load(tmp_path / "other.gguf", tmp_path)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    def metadata(writer: gguf.GGUFWriter) -> None:
        glm4_moe(writer)
        writer.kv_data[0]["glm4moe.block_count"].value = 3
        writer.add_nextn_predict_layers(1)
        for name in ("nextn.eh_proj", "attn_q", "ffn_gate_exps"):
            add_tensor(writer, f"blk.2.{name}.weight", np.ones((2, 32), dtype=np.float32), Quant.F32)

    loaded = load(write("glm4_moe", tmp_path, Quant.F32, metadata), tmp_path)
    assert (loaded.config.num_layers, loaded.config.unused) == (2, ())
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(tmp_path / "glm4_moe", prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=False))


@pytest.mark.parametrize(
    ("experts", "chunk", "expected"),
    [
        (16, None, ((8192, 8192, 8192, None), (True, True, True, False), True)),
        (128, 8192, ((8192, 8192, 8192, None), (True, True, True, False), False)),
        (16, 0, ((None,) * 4, (True,) * 4, True)),
    ],
)
def test_what_a_file_of_llama4_leaves_open(
    experts: int, chunk: int | None, expected: tuple[object, ...], tmp_path: Path
) -> None:
    """Chunks that are stored as none stand for layers that see everything."""
    sizes = {**LLAMA4, "num_local_experts": experts, "intermediate_size": 32}
    folder = tiny_model("llama4_text", tmp_path, max_position_embeddings=20_000, **sizes)

    def metadata(writer: gguf.GGUFWriter) -> None:
        llama4(writer)
        counts(experts, used=1, inner=32)(writer)
        if chunk is not None:
            writer.add_sliding_window(chunk)

    path = write_gguf(folder, tmp_path / "l.gguf", architecture="llama4", extra=metadata)
    family = load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path, max_context=32).config.architecture
    assert isinstance(family, Llama4)
    assert (family.windows, family.rotates, family.qk_norm) == expected
    assert (family.sparse, family.growth) == ((False, True, False, True), QueryGrowth(0.1, 8192, first=1))


def test_what_routers_choose_by_stays_in_float32(tmp_path: Path) -> None:
    path = write("glm4_moe", tmp_path, Quant.F32)
    load_model(path, device=CPU, dtype=torch.bfloat16, cache_dir=tmp_path / "cache")
    (stored,) = (tmp_path / "cache").rglob("model.safetensors")
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    got, original = (load_file(each)[name] for each in (stored, tmp_path / "glm4_moe" / "model.safetensors"))
    assert torch.equal(got, original)


@pytest.mark.parametrize(
    "missing", ["attn_sinks.weight", "ffn_up_exps.weight", "ffn_gate_exps.bias", "ffn_gate_inp.bias"]
)
def test_a_missing_tensor_of_gpt_oss(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def others(writer: gguf.GGUFWriter, name: str, tensor: Array, kind: Quant) -> None:
        if name != f"blk.1.{missing}":
            add_tensor(writer, name, tensor, kind)

    monkeypatch.setattr(gguf_files, "add_tensor", others)
    path = write("gpt_oss", tmp_path, Quant.F32)
    with pytest.raises(ModelLoadError, match=rf"tensor 'blk\.1\.{missing}' is missing$"):
        load(path, tmp_path)
