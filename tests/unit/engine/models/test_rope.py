"""Rotary frequencies by context, and logits under them against transformers, before and beyond the original context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.assemble import model_config

CPU = torch.device("cpu")
THETA = 10000.0
DYNAMIC = {"rope_type": "dynamic", "rope_theta": THETA, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": THETA, "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope", "rope_theta": THETA, "original_max_position_embeddings": 24,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], "long_factor": [1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 12.0, 16.0],
}  # fmt: skip


def read(tmp_path: Path, **overrides: Any) -> ModelConfig:
    return model_config(tiny_model("llama", tmp_path, **overrides))


def text(length: int) -> list[int]:
    return torch.randint(3, 131, (length,), generator=torch.Generator().manual_seed(length)).tolist()


def assert_same_logits(folder: Path, length: int, context: int) -> None:
    """Of one sequence, in two steps, by a model that serves `context`."""
    tokens = text(length)
    with torch.no_grad():
        expected: Tensor = reference_model(folder)(torch.tensor([tokens])).logits[0]
    run = PagedRun(load_model(folder, device=CPU, dtype=torch.float32, max_context=context).model, 1, length)
    got = torch.cat((run.step({0: tokens[: length // 2]})[0], run.step({0: tokens[length // 2 :]})[0]))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("rope", "positions", "expected"),
    [
        ({"rope_type": "default", "rope_theta": THETA}, 256, 256),
        ({"rope_type": "linear", "rope_theta": THETA, "factor": 4.0}, 256, 256),
        (YARN, 64, 256),  # as Qwen2.5 says it
        (YARN, 80, 256),  # as Qwen3
        (YARN, 256, 256),  # as GPT-OSS
        (YARN | {"original_max_position_embeddings": 32}, 256, 256),
        (DYNAMIC, 256, 512),
        (LONG, 256, 256),
    ],
)
def test_the_context_that_scaling_reaches(rope: dict[str, Any], positions: int, expected: int, tmp_path: Path) -> None:
    config = read(tmp_path, rope_parameters=rope, max_position_embeddings=positions)
    assert config.max_context == expected
    assert config.within(10_000).max_context == expected
    assert config.within(50).max_context == 50


def test_long_factors_serve_contexts_beyond_the_original_one(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, rope_parameters=LONG)
    whole = model_config(folder)
    assert whole.rope == whole.within(25).rope
    plain = [THETA ** (-i / 8) for i in range(8)]
    for context, factors in ((24, LONG["short_factor"]), (25, LONG["long_factor"])):
        got = whole.within(context).rope.inverse_frequencies
        assert got == pytest.approx([each / factor for each, factor in zip(plain, factors, strict=True)], rel=1e-6)
    assert_same_logits(folder, 24, 24)
    assert_same_logits(folder, 25, 200)
    assert_same_logits(folder, 60, 200)


def test_long_and_partial_rotation_beyond_the_original_context(tmp_path: Path) -> None:
    rope = LONG | {
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0] * 6,
        "long_factor": [1.0, 2.0, 3.0, 5.0, 7.0, 9.0],
    }
    sizes = {"hidden_size": 96, "original_max_position_embeddings": 24, "sliding_window": None}
    folder = tiny_model("phi3", tmp_path, rope_parameters=rope, **sizes)
    assert len(model_config(folder).rope.inverse_frequencies) == 6
    assert_same_logits(folder, 24, 24)
    assert_same_logits(folder, 60, 200)


def test_local_layers_have_positions_of_their_own(tmp_path: Path) -> None:
    config = model_config(tiny_model("gemma3_text", tmp_path))
    assert config.local_rope is not None
    assert config.local_rope.inverse_frequencies[1] == pytest.approx(100.0 ** (-1 / 8))
    assert config.rope.inverse_frequencies[1] == pytest.approx(THETA ** (-1 / 8) / 3)
    assert config.within(20).local_rope == config.local_rope


def test_dynamic_scaling_is_that_of_the_longest_sequence(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, rope_parameters=DYNAMIC, max_position_embeddings=32)
    config = model_config(folder)
    assert config.within(20).rope == config.within(32).rope
    assert config.rope.inverse_frequencies[-1] < config.within(32).rope.inverse_frequencies[-1] / 2
    assert_same_logits(folder, 20, 32)
    assert_same_logits(folder, 64, 64)


def test_yarn_beyond_the_original_context(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, rope_parameters=YARN, max_position_embeddings=64)
    assert_same_logits(folder, 200, 256)


_LINEAR = {"rope_type": "linear", "factor": 4.0}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "two factors": (
        {"rope_scaling": _LINEAR, "rope_parameters": _LINEAR | {"factor": 8.0}},
        "factor is 4.0, and rope_parameters says 8.0",
    ),
    "two kinds": (
        {"rope_scaling": _LINEAR, "rope_parameters": _YARN},
        "rope_type is 'linear', and rope_parameters says",
    ),
    "an older name": (
        {"rope_scaling": {"type": "linear"}, "rope_parameters": _YARN},
        "type is 'linear', and rope_para",
    ),
    "two bases": ({"rope_theta": 500.0, "rope_parameters": {"rope_theta": 1e4}}, "rope_theta is 500.0, and rope_param"),
    "two types": (
        {"rope_scaling": _LINEAR | {"type": "dynamic"}},
        "has two types: type is 'dynamic', rope_type 'linear'",
    ),
    "no type": ({"rope_scaling": {"factor": 4.0}}, "a factor of 4.0, and no rope_type"),
    "the plain type": (
        {"rope_parameters": {"rope_type": "default", "factor": 4.0}},
        "a factor of 4.0, and no rope_type",
    ),
    "a key of another engine": (
        {"rope_scaling": _YARN | {"attn_factor": 2.0}},
        "attn_factor .* 'yarn' is not implemented",
    ),
    "a key of another model": (
        {"rope_scaling": {**_LINEAR, "type": "linear", "alpha": 1e3}},
        "alpha .* is not implemented",
    ),
    "a scale of queries": (
        {"rope_scaling": _YARN | {"llama_4_scaling_beta": 0.1}},
        "llama_4_scaling_beta .* not implem",
    ),
}


@pytest.mark.parametrize("around", [None, "llava"])
@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_scalings_that_would_be_ignored_are_refused(case: str, around: str | None, tmp_path: Path) -> None:
    fields, said = CONTRADICTIONS[case]
    content = {"model_type": "llama", "eos_token_id": 2, **fields}
    if around is not None:
        content = {"model_type": around, "text_config": content}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ModelLoadError, match=f"{tmp_path}: .*{said}"):
        model_config(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 1e4, "rope_scaling": None, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
        {"rope_scaling": _LINEAR | {"type": "linear"}, "rope_parameters": _LINEAR | {"rope_theta": 1e4}},
        {"rope_scaling": {"type": "default", "rope_type": "default", "factor": 1.0}},
    ],
)
def test_what_says_the_same_twice_loads(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 2, **fields}))
    assert model_config(tmp_path).rope.inverse_frequencies[0] in {1.0, 0.25}
