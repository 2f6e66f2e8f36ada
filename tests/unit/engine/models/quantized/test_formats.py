"""Quantized checkpoints as they are published, against what their documentation says that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.checkpoints import SCHEMES, Scheme, awq, fp8, gptq, w4a16
from tests.support.dequantized import log_probabilities
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.published_formats import dequantized, write_dequantized
from tests.support.quantized_models import quantized_model
from tests.support.sweep import spread
from thothy_ai.engine.model_check.sizing import weight_bytes
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.kernels.reference import grouped
from thothy_ai.kernels.reference.quantize import dequantize_blocks

CPU = torch.device("cpu")
ACTIVATIONS_TOO = ("fp8", "int8")  # in the names of schemes whose activations are quantized as well
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
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, NEW_TOKENS, CPU)
    for preempted, chunked in ((True, False), (False, True)):
        Oracle(loaded, prompts, expected).check(
            options(preempted=preempted, chunked=chunked, overlap=chunked, prefix_cache=preempted)
        )


@pytest.mark.parametrize(
    "name",
    [
        "fp8, blocks of 128",
        "fp8, one scale",
        "compressed-tensors fp8, channels",
        "compressed-tensors W4A16, groups of 32, asymmetric",
        "AWQ, groups of 32",
        "GPTQ, groups of 32, asymmetric, act-order, version 2",
    ],
)
def test_what_expands_latents_is_dequantized(name: str, tmp_path: Path) -> None:
    sizes = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "head_dim": 8, "qk_nope_head_dim": 8}
    only = "" if "fp8" in name else "self_attn"  # in the other formats, tensors decide what is plain
    folder = quantized_model(
        SCHEMES[name], tmp_path, "deepseek_v3", only, **sizes, v_head_dim=16, initializer_range=0.08
    )
    stored = load_file(folder / "model.safetensors").get("model.layers.0.self_attn.kv_b_proj.weight")
    assert stored is None or stored.dtype == torch.float8_e4m3fn
    plain = write_dequantized(folder, tmp_path / "plain")
    loaded, expected = (load_model(path, device=CPU, dtype=torch.float32).model for path in (folder, plain))
    got, wanted = (log_probabilities(model, TOKENS) for model in (loaded, expected))
    apart = float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm())
    assert apart < (0.12 if "fp8" in name else 1e-5)


@pytest.mark.parametrize("name", SCHEMES)
def test_memory_is_planned_without_reading_a_weight(name: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[name], tmp_path)
    config = model_config(folder)
    model = load_model(folder, device=CPU, dtype=torch.bfloat16).model
    assert weight_bytes(config, "auto", CPU, torch.bfloat16) == model.num_bytes
    plain = model_config(tmp_path / "llama")
    assert num_parameters(config) == num_parameters(plain)


def test_blocks_keep_their_values_and_plain_layers_theirs(tmp_path: Path) -> None:
    scheme = fp8(modules_to_not_convert=["o_proj"])
    folder = quantized_model(scheme, tmp_path, hidden_size=144, intermediate_size=160)
    stored = load_file(folder / "model.safetensors")
    for name in [name for name in stored if "o_proj" in name]:
        del stored[name]
    plain = load_file(tmp_path / "llama" / "model.safetensors")
    stored |= {name: tensor for name, tensor in plain.items() if "o_proj" in name}
    save_file(stored, folder / "model.safetensors")
    wanted = dequantized(stored, dict(scheme.config))
    for index, layer in enumerate(load_model(folder, device=CPU, dtype=torch.float32).model.decoder.layers):  # type: ignore[attr-defined]
        prefix = f"model.layers.{index}."
        for linear, names in {
            layer.attention.qkv: [f"self_attn.{part}_proj" for part in "qkv"],
            layer.mlp.gate_up: ["mlp.gate_proj", "mlp.up_proj"],
            layer.mlp.down: ["mlp.down_proj"],
        }.items():
            expected = torch.cat([wanted[f"{prefix}{name}.weight"] for name in names])
            assert torch.equal(dequantize_blocks(linear.layer._weight), expected)
        identity = torch.eye(96)
        assert torch.equal(layer.attention.output(identity).t(), plain[f"{prefix}self_attn.o_proj.weight"])


@pytest.mark.parametrize("family", ["cohere", "glm4", "phi3", "qwen3_moe"])
def test_blocks_of_families_that_reorder_merge_or_stack_weights(family: str, tmp_path: Path) -> None:
    """Layers in blocks, routers and experts are near what they stand for; memory is planned with them."""
    sizes = {"moe_intermediate_size": 64} if "moe" in family else {}
    folder = quantized_model(fp8(), tmp_path, family, initializer_range=0.08, **sizes)
    plain = write_dequantized(folder, tmp_path / "plain")
    models = [load_model(path, device=CPU, dtype=torch.float32).model for path in (folder, plain)]
    got, wanted = (log_probabilities(model, TOKENS) for model in models)
    assert 1e-4 < float((got - wanted).norm() / (wanted - wanted.mean(-1, keepdim=True)).norm()) < 0.2
    assert weight_bytes(model_config(folder), "auto", CPU, torch.float32) == models[0].num_bytes


def unrounded(scheme: Scheme) -> Scheme:
    """With scales in float32 that 16 bits do not hold."""

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        stored = dict(scheme.store(weight))
        name = next(name for name in stored if "scale" in name)
        return stored | {name: stored[name].float() * 1.0001}

    return replace(scheme, store=store)


@pytest.mark.parametrize(
    "scheme",
    [awq(32), gptq(4, 32, symmetric=False), gptq(8, 32, symmetric=False), w4a16(32, symmetric=False), gptq(4, 32)],
    ids=["awq", "gptq", "gptq of 8 bits", "compressed-tensors", "symmetric"],
)
def test_scales_in_float32_stay_so(scheme: Scheme, tmp_path: Path) -> None:
    folder = quantized_model(unrounded(scheme), tmp_path, "qwen2")
    stored = load_file(folder / "model.safetensors")
    assert any("scale" in name and tensor.dtype == torch.float32 for name, tensor in stored.items())
    wanted = dequantized(stored, dict(scheme.config))
    for index, layer in enumerate(load_model(folder, device=CPU, dtype=torch.float32).model.decoder.layers):  # type: ignore[attr-defined]
        got = grouped.dequantized(layer.mlp.down.layer._weight)
        torch.testing.assert_close(got, wanted[f"model.layers.{index}.mlp.down_proj.weight"], atol=0, rtol=2e-7)


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
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, NEW_TOKENS, CPU)
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
