"""Quantized checkpoints as they are published, against what their documentation says that they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.checkpoints import SCHEMES, Scheme, awq, gptq
from tests.support.dequantized import log_probabilities
from tests.support.oracle import Oracle, generate, options, random_prompts
from tests.support.published_formats import write_dequantized
from tests.support.quantized_models import quantized_model
from tests.support.sweep import spread
from thothy_ai.engine.process.sizing import weight_bytes
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.engine.weights.loader import load_model

CPU = torch.device("cpu")
ACTIVATIONS_TOO = ("fp8", "int8")  # in the names of schemes whose activations are quantized as well
ROUNDED_AGAIN = {"fp8, blocks of 128"}
TOKENS = torch.randint(3, 131, (80,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("name", SCHEMES)
def test_log_probabilities_are_those_of_the_dequantized_weights(name: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path, "qwen2", initializer_range=0.08)
    plain = write_dequantized(folder, tmp_path / "plain")
    models = [load_model(path, device=CPU, dtype=torch.float32).model for path in (folder, plain)]
    got, wanted = (log_probabilities(model, TOKENS) for model in models)
    apart = float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm())
    if any(word in name for word in ACTIVATIONS_TOO):
        assert 1e-4 < apart < 0.12
    else:
        assert apart < 1e-5


@pytest.mark.parametrize(
    ("name", "family"),
    spread([name for name in SCHEMES if not any(word in name for word in ACTIVATIONS_TOO)], ["qwen2", "gemma2"]),
)
def test_greedy_tokens_are_those_of_transformers(name: str, family: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path, family)
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, 24, CPU)
    for preempted, chunked in ((True, False), (False, True)):
        Oracle(loaded, prompts, expected).check(
            options(preempted=preempted, chunked=chunked, overlap=chunked, prefix_cache=preempted)
        )


@pytest.mark.parametrize("name", SCHEMES)
def test_memory_is_planned_without_reading_a_weight(name: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path)
    config = model_config(folder)
    model = load_model(folder, device=CPU, dtype=torch.bfloat16).model
    assert weight_bytes(config, "auto", CPU, torch.bfloat16) == model.num_bytes
    plain = model_config(tmp_path / "llama")
    assert num_parameters(config) == num_parameters(plain)


MLP = [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]
MIXED: dict[str, tuple[Scheme, str]] = {
    "q_proj alone, beside plain k_proj and v_proj": (
        awq(32, modules_to_not_convert=["k_proj", "v_proj", "o_proj", "mlp"]), "q_proj",
    ),
    "the MLPs": (gptq(4, 32, modules_in_block_to_quantize=MLP), "mlp"),
    "the first layer": (gptq(4, 32, reordered=True, dynamic={r"-:model\.layers\.[12]\.": {}}), "layers.0."),
}  # fmt: skip


@pytest.mark.parametrize("quantized_part", MIXED)
def test_some_layers_are_quantized_and_some_are_not(quantized_part: str, tmp_path: Path) -> None:
    scheme, only = MIXED[quantized_part]
    folder = quantized_model(scheme, tmp_path, "qwen2", only)
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, 24, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True))
    assert weight_bytes(model_config(folder), "auto", CPU, torch.float32) == loaded.model.num_bytes


def test_what_is_not_quantized_can_be_turned_into_fp8(tmp_path: Path) -> None:
    scheme, only = MIXED["the MLPs"]
    folder = quantized_model(scheme, tmp_path, "qwen2", only)
    plain, fp8_too = (
        load_model(folder, device=CPU, dtype=torch.float32, weights=kind).model for kind in ("auto", "fp8")
    )
    takes = [(layer.attention.qkv.takes_fp8, layer.mlp.down.takes_fp8) for layer in fp8_too.decoder.layers]  # type: ignore[attr-defined]
    assert takes == [(True, False)] * 3
    assert fp8_too.num_bytes < plain.num_bytes
