"""GGUF files of mixtures of experts, as llama.cpp's converter writes them: a tensor for all experts of a layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Quant

from tests.support.gguf_files import write_gguf
from tests.support.oracle import Oracle, generate, options, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.errors import EngineError, ModelLoadError, UnsupportedModelError
from thothy_ai.engine.process.sizing import weight_bytes
from thothy_ai.engine.weights.loader import LoadedModel, load_model

CPU = torch.device("cpu")
Metadata = Callable[[gguf.GGUFWriter], None]


def counts(experts: int, used: int = 2, inner: int | None = None) -> Metadata:
    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
        if inner is not None:
            writer.add_expert_feed_forward_length(inner)

    return write


class Case(NamedTuple):
    """A family's file: its architecture, its metadata, and the model's sizes (whole K-quant blocks)."""

    architecture: str
    metadata: Metadata
    sizes: dict[str, Any]


CASES = {
    "qwen3_moe": Case("qwen3moe", counts(6, inner=256), {"moe_intermediate_size": 256, "mlp_only_layers": []}),
    "mixtral": Case("llama", counts(5), {"intermediate_size": 256}),
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


def load(path: Path, tmp_path: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache", weights=weights)


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_greedy_tokens_are_those_of_transformers(kind: Quant, family: str, tmp_path: Path) -> None:
    loaded = load(write(family, tmp_path, kind), tmp_path)
    assert loaded.config.family == family
    [plain] = (tmp_path / "cache" / "gguf").iterdir()  # what the file stands for, by the gguf package
    prompts = random_prompts(loaded.config.vocab_size)
    reference = plain if kind is not Quant.F32 else tmp_path / family
    expected = generate(reference, prompts, 16, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True))


@pytest.mark.parametrize("family", CASES)
def test_linear_layers_stay_quantized_beside_plain_experts(family: str, tmp_path: Path) -> None:
    path = write(family, tmp_path, Quant.Q4_0)
    plain, stored = load(path, tmp_path), load(path, tmp_path, "stored")
    attention = 2 * (256 * (256 + 2 * 32) + 256 * 256)  # numbers, of which each takes 4.5 bits instead of 32
    assert plain.model.num_bytes - stored.model.num_bytes == attention * (32 - 4.5) / 8
    assert weight_bytes(stored.config, "stored", CPU, torch.float32) == stored.model.num_bytes
    prompts = random_prompts(stored.config.vocab_size)
    [folder] = (path for path in (tmp_path / "cache" / "gguf").iterdir() if "blocks" not in _names(path))
    expected = generate(folder, prompts, 16, CPU)
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
        ("mixtral", lambda _: None, UnsupportedModelError, "ffn_gate_inp.weight' has no place|ffn_.*_exps.weight'"),
    ],
)
def test_metadata_that_does_not_fit_is_named(
    family: str, metadata: Metadata, error: type[EngineError], says: str, tmp_path: Path
) -> None:
    path = write(family, tmp_path, Quant.F32, metadata)
    with pytest.raises(error, match=says):
        load(path, tmp_path)


@pytest.mark.parametrize("architecture", ["glm4moe", "gpt-oss"])
def test_other_mixtures_are_refused_by_name(architecture: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", architecture)
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=f"architecture '{architecture}' is not implemented"):
        load(tmp_path / "other.gguf", tmp_path)
