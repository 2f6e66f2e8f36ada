"""GGUF files of families whose metadata says more than Llama's, as llama.cpp's converter writes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.support.gguf_files import add_tensor, write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.weights.gguf.configuration import causal_class
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(3)).tolist()
Metadata = Callable[[gguf.GGUFWriter], None]


def load(path: Path, cache: Path, context: int | None = None) -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=cache, max_context=context)


def reference(folder: Path) -> Tensor:
    with torch.no_grad():
        logits: Tensor = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    return logits


def granite(writer: gguf.GGUFWriter) -> None:
    writer.add_attention_scale(0.2)
    writer.add_embedding_scale(6.0)
    writer.add_residual_scale(0.4)
    writer.add_logit_scale(3.0)


def gemma2(writer: gguf.GGUFWriter) -> None:
    writer.add_sliding_window(12)
    writer.add_attn_logit_softcapping(2.0)
    writer.add_final_logit_softcapping(5.0)


def gemma3(writer: gguf.GGUFWriter) -> None:
    writer.add_sliding_window(12)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(3.0)


def cohere2(writer: gguf.GGUFWriter) -> None:
    writer.add_logit_scale(0.7)
    writer.add_sliding_window(12)
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def ministral3(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(16.0)
    writer.add_rope_scaling_orig_ctx_len(16)
    writer.add_rope_scaling_yarn_log_mul(1.0)
    writer.add_attn_temperature_scale(0.4)


def olmo3(writer: gguf.GGUFWriter) -> None:
    writer.add_sliding_window(12)
    writer.add_sliding_window_pattern([True, False, True])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(64)


FOUR = {"num_hidden_layers": 4}  # of which the last is the odd one
LINEAR3 = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA3 = {
    "num_hidden_layers": 7, "layer_types": None, "query_pre_attn_scalar": 16,
    "rope_parameters": {"full_attention": LINEAR3, "sliding_attention": LOCAL},
}  # fmt: skip
FILES: dict[str, tuple[str, str, dict[str, Any], Metadata]] = {
    "granite": ("granite", "granite", {}, granite),
    "smollm3": ("smollm3", "smollm3", FOUR | {"no_rope_layers": None, "use_sliding_window": False}, lambda _: None),
    "seed_oss": ("seed_oss", "seed_oss", {}, lambda _: None),
    "seed_oss no biases": ("seed_oss", "seed_oss", {"attention_bias": False}, lambda _: None),
    "olmo2": ("olmo2", "olmo2", {}, lambda _: None),
    "olmo3": ("olmo3", "olmo2", {}, olmo3),
    "phi3": ("phi3", "phi3", {}, lambda writer: writer.add_sliding_window(30)),
    "phi3 no window": ("phi3", "phi3", {"sliding_window": None}, lambda writer: writer.add_sliding_window(0)),
    "glm4": ("glm4", "glm4", {}, lambda _: None),
    "gemma2": ("gemma2", "gemma2", {"query_pre_attn_scalar": 16}, gemma2),
    "gemma3": ("gemma3_text", "gemma3", GEMMA3, gemma3),
    "command-r": ("cohere", "command-r", {"use_qk_norm": False}, lambda writer: writer.add_logit_scale(0.7)),
    "command-r plus": ("cohere", "command-r", {"use_qk_norm": True}, lambda writer: writer.add_logit_scale(0.7)),
    "mistral3": ("ministral3", "mistral3", {}, ministral3),
    "cohere2": ("cohere2", "cohere2", FOUR | {"layer_types": None}, cohere2),
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", FILES)
def test_families_match_transformers(kind: str, tmp_path: Path, *, tied: bool) -> None:
    family, architecture, overrides, metadata = FILES[kind]
    folder = tiny_model(family, tmp_path, tie_word_embeddings=tied, **overrides)
    path = write_gguf(folder, tmp_path / "tiny.gguf", architecture=architecture, extra=metadata)
    loaded = load(path, tmp_path / "cache")
    assert (loaded.config.family, loaded.config.tied_embeddings) == (family, tied)
    got = PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0]
    torch.testing.assert_close(got, reference(folder), atol=1e-4, rtol=0)


def test_long_factors_of_phi3(tmp_path: Path) -> None:
    short, long = [1.0, 1.5, 2.0], [1.0, 4.0, 9.0]
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75}
    sizes = {"head_dim": 8, "original_max_position_embeddings": 24, "sliding_window": None}
    factors = {"short_factor": short, "long_factor": long}
    folder = tiny_model("phi3", tmp_path, rope_parameters=rope | factors, **sizes)

    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(0)
        writer.add_rope_scaling_orig_ctx_len(24)
        writer.add_rope_scaling_attn_factors((1 + math.log(256 / 24) / math.log(24)) ** 0.5)
        add_tensor(writer, "rope_factors_long.weight", np.array(long, dtype=np.float32), Quant.F32)
        add_tensor(writer, "rope_factors_short.weight", np.array(short, dtype=np.float32), Quant.F32)

    path = write_gguf(folder, tmp_path / "p.gguf", architecture="phi3", extra=metadata)
    loaded = load(path, tmp_path / "cache", context=200)
    got = PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0]
    torch.testing.assert_close(got, reference(folder), atol=1e-4, rtol=0)


def test_gemma2_of_27b_multiplies_scores_by_what_a_head_has_of_the_hidden_size(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 46, "intermediate_size": 8, "vocab_size": 131, "query_pre_attn_scalar": 8}
    folder = tiny_model("gemma2", tmp_path, **sizes)
    path = write_gguf(folder, tmp_path / "g.gguf", architecture="gemma2", extra=gemma2)
    attention = load(path, tmp_path / "cache").config.architecture.attention  # type: ignore[attr-defined]
    assert {params.scale for params in attention} == {8**-0.5}


def test_gemma3_of_27b_multiplies_scores_by_what_a_head_has_of_the_hidden_size(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 62, "intermediate_size": 8, "vocab_size": 131, "query_pre_attn_scalar": 8}
    folder = tiny_model("gemma3_text", tmp_path, **GEMMA3 | sizes)
    path = write_gguf(folder, tmp_path / "g.gguf", architecture="gemma3", extra=gemma3)
    assert load(path, tmp_path / "cache").config.architecture.attention[0].scale == 8**-0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("architecture", "family", "metadata", "error", "named"),
    [
        ("granite", "granite", lambda _: None, ModelLoadError, "granite.embedding_scale"),
        ("seed_oss", "seed_oss", lambda writer: writer.add_sliding_window(12), UnsupportedModelError,
         "seed_oss.attention.sliding_window 12 is"),
        ("glm4", "glm4", lambda writer: writer.add_rope_dimension_sections([1, 2, 1]), UnsupportedModelError,
         "rope.dimension_sections"),
        ("glm4", "glm4", lambda writer: writer.add_nextn_predict_layers(1), UnsupportedModelError, "nextn"),
        ("gemma3", "gemma3_text", lambda writer: (gemma3(writer), writer.add_final_logit_softcapping(30.0)),
         UnsupportedModelError, "final_logit_softcapping"),
        ("seed_oss", "seed_oss", lambda writer: writer.add_logit_scale(0.5), UnsupportedModelError, "logit_scale"),
    ],
)  # fmt: skip
def test_what_such_files_lack_or_have_beyond_is_named(
    architecture: str, family: str, metadata: Metadata, error: type[Exception], named: str, tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path)
    path = write_gguf(folder, tmp_path / "t.gguf", architecture=architecture, extra=metadata)
    with pytest.raises(error, match=named):
        load(path, tmp_path / "cache")


def test_the_class_of_every_family_is_named_as_transformers_does() -> None:
    written = [family.model_type for family in FAMILIES.values() if family.gguf is not None]
    assert {name: causal_class(name) for name in (*written, "mistral")} == {
        name: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name] for name in (*written, "mistral")
    }
