"""Scaled rotary frequencies against transformers' own functions, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.rope import read_ropes

HEADS, HEAD_DIM, CONTEXT = 4, 64, 8192
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LONG = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 1024,
    "short_factor": [1.0 + 0.01 * pair for pair in range(HEAD_DIM // 2)],
    "long_factor": [1.0 + 1.3 * pair for pair in range(HEAD_DIM // 2)],
}
HALF = {"partial_rotary_factor": 0.5}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "linear, partial": {"rope_type": "linear", "factor": 2.5, **HALF},
    "llama3": {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 1024},
    "llama3, of a longer context": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 4096},
    "llama3, of the whole context": {**LLAMA3, "factor": 8.0},
    "yarn": YARN,
    "yarn, partial": {**YARN, **HALF},
    "yarn, not truncated": {**YARN, "truncate": False},
    "yarn, other bounds": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, bounds that meet": {**YARN, "beta_fast": 2.0, "beta_slow": 2.0, "truncate": False},
    "yarn, its sharpening": {**YARN, "attention_factor": 0.8},
    "yarn, as DeepSeek says it": {**YARN, "mscale": 0.9, "mscale_all_dim": 0.7},
    "yarn, by the context": {**YARN, "factor": None},
    "yarn that shrinks": {**YARN, "factor": 0.5},
    "longrope": LONG,
    "longrope, its factor": {**LONG, "factor": 5.0},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.3, "factor": 3.0},
    "proportional, all of a head": {"rope_type": "proportional"},
    "longrope that does not stretch": {**LONG, "factor": 1.0},
    "longrope, its sharpening": {**LONG, "attention_factor": 1.5},
}


def configuration(parameters: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_theta": 500_000.0, **parameters},
    )


def theirs(parameters: dict[str, Any], length: int | None = None) -> tuple[tuple[float, ...], float]:
    compute = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    frequencies, scaling = compute(configuration(parameters), torch.device("cpu"), seq_len=length)
    return tuple(frequencies.tolist()), scaling


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_and_scaling_are_those_of_transformers(kind: str) -> None:
    parameters = KINDS[kind]
    rope, local = read_ropes(configuration(parameters), HEAD_DIM)
    assert local is None
    assert (rope.inverse_frequencies, rope.scaling) == theirs(parameters)
    assert rope.within(100).inverse_frequencies == rope.inverse_frequencies


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("longrope")])
def test_beyond_the_original_context_too(kind: str) -> None:
    rope, _ = read_ropes(configuration(KINDS[kind]), HEAD_DIM)
    long, scaling = theirs(KINDS[kind], CONTEXT)
    assert rope.within(CONTEXT).inverse_frequencies == long != rope.inverse_frequencies
    assert rope.within(CONTEXT).scaling == scaling


@pytest.mark.parametrize("factors", [[1.0], [1.0] * (HEAD_DIM // 2 - 1), [], None, 1.0])
def test_longrope_needs_a_factor_for_each_pair(factors: object) -> None:
    config = configuration(LONG)
    config.rope_parameters["long_factor"] = factors
    with pytest.raises(UnsupportedModelError, match="long_factor must have 32 values"):
        read_ropes(config, HEAD_DIM)
