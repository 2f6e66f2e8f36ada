"""Mixtures whose experts are published in int4 or int8: dequantized when they are loaded, expert by expert."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.checkpoints import SCHEMES, Scheme, awq, gptq, w4a16, w8a8_int8, write_quantized
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.published_formats import write_dequantized
from tests.support.sweep import combinations, spread
from tests.support.tiny_models import tiny_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api.errors import ModelLoadError, OutOfMemoryError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.sizing import plan_memory, weight_bytes
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
EXPERTS = ".experts."
OTHERS = r"re:^(?!.*([.]experts[.]|mlp[.]gate$))"  # for compressed-tensors to ignore: all but experts and routers
SIZES: dict[str, dict[str, Any]] = {  # inner sizes of whole groups, of less than one, and of one and a half
    "qwen3_moe": {"hidden_size": 96, "moe_intermediate_size": 64, "intermediate_size": 160},
    "mixtral": {"hidden_size": 96, "intermediate_size": 160, "num_local_experts": 5},
    "glm4_moe": {"hidden_size": 96, "moe_intermediate_size": 16, "intermediate_size": 160},
}
INT = {name: scheme for name, scheme in SCHEMES.items() if "fp8" not in name}
PLANNED = ["AWQ, groups of 32", "GPTQ, groups of 128", "compressed-tensors W8A8 int8, channels"]
GPTQ = gptq(4, 32)


def model(family: str, tmp_path: Path) -> Path:
    return tiny_model(family, tmp_path, tie_word_embeddings=False, **SIZES[family])


def quantized(family: str, scheme: Scheme, tmp_path: Path, only: str = "") -> Path:
    return write_quantized(model(family, tmp_path), tmp_path / "quantized", scheme, only)


def experts_only(scheme: Scheme) -> Scheme:
    """For formats whose linear layers quantize activations, which would hide what experts do."""
    return replace(scheme, config={**scheme.config, "ignore": ["lm_head", OTHERS]})


def load(folder: Path, weights: str = "auto", dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(folder, device=CPU, dtype=dtype, weights=weights)


def check_tokens(folder: Path, tmp_path: Path) -> LoadedModel:
    """Token for token those of `transformers` over what the weights stand for."""
    loaded = load(folder)
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(write_dequantized(folder, tmp_path / "plain"), prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True))
    return loaded


@pytest.mark.parametrize(("name", "family"), spread(INT, [*SIZES]))
def test_greedy_tokens_are_those_of_transformers(name: str, family: str, tmp_path: Path) -> None:
    apart = "W8A8" in name
    scheme = experts_only(INT[name]) if apart else INT[name]
    check_tokens(quantized(family, scheme, tmp_path, EXPERTS if apart else ""), tmp_path)


@pytest.mark.parametrize(
    ("name", "family", "weights"),
    combinations(
        ["AWQ, groups of 32", "GPTQ, groups of 128", "compressed-tensors W8A8 int8, channels"],
        [*SIZES],
        ["auto", "fp8"],
    ),
)
def test_memory_is_planned_without_reading_a_weight(name: str, family: str, weights: str, tmp_path: Path) -> None:
    folder = quantized(family, INT[name], tmp_path)
    loaded = load(folder, weights, torch.bfloat16)
    assert weight_bytes(model_config(folder), weights, CPU, torch.bfloat16) == loaded.model.num_bytes


def test_experts_take_what_those_of_a_plain_checkpoint_do(tmp_path: Path) -> None:
    folder = quantized("qwen3_moe", GPTQ, tmp_path, EXPERTS)
    plain = tmp_path / "qwen3_moe"
    for weights in ("auto", "fp8"):
        sizes = [load(each, weights, torch.bfloat16).model.num_bytes for each in (folder, plain)]
        assert sizes[0] == sizes[1]


def test_thirty_billion_parameters_in_int4_fit_31_gb_in_fp8(tmp_path: Path) -> None:
    shape = SHAPES["qwen3-30b-a3b"] | {"eos_token_id": 2, "quantization_config": dict(gptq(4, 128).config)}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    config, kind = model_config(tmp_path), torch.bfloat16
    gpu = torch.device("cuda")
    plan = plan_memory(config, EngineOptions(url="", weights="fp8"), gpu, kind, memory=80 * 10**9)
    assert plan.weights < 31e9
    assert plan.weight_type == "gptq, experts in fp8"
    plain = plan_memory(config, EngineOptions(url=""), gpu, kind, memory=48 * 10**9)
    with pytest.raises(OutOfMemoryError, match=r"needs 59\.7 GB for weights in gptq, experts in bfloat16"):
        plain.require("qwen")


def rewritten(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> Path:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return folder


def with_routers(store: Callable[[Tensor], Mapping[str, Tensor]]) -> Callable[[dict[str, Tensor]], None]:
    """Quantized, as AutoRound leaves them."""

    def edit(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.endswith("gate.weight")]:
            stem = name.removesuffix("weight")
            tensors.update({stem + ending: part for ending, part in store(tensors.pop(name)).items()})

    return edit


ROUTED: dict[str, Scheme] = {
    "gptq": GPTQ,
    "awq": awq(32),
    "w4a16": w4a16(32),
    "int8": experts_only(w8a8_int8()),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUTED)
def test_a_router_may_be_quantized(name: str, tmp_path: Path) -> None:
    folder = tiny_model("qwen3_moe", tmp_path, tie_word_embeddings=False, **SIZES["qwen3_moe"], num_experts=8)
    folder = write_quantized(folder, tmp_path / "quantized", ROUTED[name], EXPERTS if name == "int8" else "")
    check_tokens(rewritten(folder, with_routers(ROUTED[name].store)), tmp_path)


MIXED: dict[str, tuple[Scheme, str]] = {
    "gate, as a part of gate_proj": (awq(32, modules_to_not_convert=["gate"]), ""),
    "the down projections alone": (gptq(4, 32), "down_proj"),
    "one expert of all": (w4a16(32), ".experts.3."),
    "the second layer": (awq(32, modules_to_not_convert=["layers.0.", "layers.1."]), "layers.2."),
    "experts, but nothing else": (gptq(4, 32, dynamic={"-:.*self_attn": {}}), EXPERTS),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("family", ["qwen3_moe", "glm4_moe"])
def test_a_folder_s_tensors_say_which_layers_are_quantized(name: str, family: str, tmp_path: Path) -> None:
    scheme, only = MIXED[name]
    check_tokens(quantized(family, scheme, tmp_path, only), tmp_path)


def expert(name: str) -> str:
    return f"model.layers.2.mlp.experts.4.{name}"


FAULTS: dict[str, tuple[Scheme, Callable[[dict[str, Tensor]], object], str]] = {
    "scales missing": (GPTQ, lambda t: t.pop(expert("up_proj.scales")), r"4\.up_proj\.scales' is missing"),
    "scales of a wrong shape": (
        GPTQ,
        lambda t: t.update({expert("down_proj.scales"): t[expert("down_proj.scales")][:-1]}),
        r"experts\.4\.down_proj\.scales' has shape \(1, 96\).* \(2, 96\)",
    ),
    "groups of other sizes": (
        gptq(4, 32, reordered=True),
        lambda t: t.update({expert("up_proj.g_idx"): torch.full((96,), 9, dtype=torch.int32)}),
        r"experts\.4\.up_proj: the groups of inputs \(g_idx\)",
    ),
    "words of a wrong type": (
        awq(32),
        lambda t: t.update({expert("up_proj.qweight"): t[expert("up_proj.qweight")].long()}),
        r"experts\.4\.up_proj\.qweight' is torch\.int64",
    ),
    "an expert missing": (
        w4a16(32),
        lambda t: [t.pop(name) for name in list(t) if ".experts.5." in name],
        r"experts\.5\.gate_proj\.weight_\w+' is missing",
    ),
    "an expert too many": (
        w4a16(32),
        lambda t: t.update({name.replace("experts.5", "experts.6"): t[name].clone() for name in list(t)}),
        r"no place for tensor .*experts\.6\.",
    ),
    "int8 without scales": (
        w8a8_int8(),
        lambda t: t.pop(expert("up_proj.weight_scale")),
        r"4\.up_proj\.weight_scale' is missing",
    ),
    "plain, beside its scales": (
        GPTQ,
        lambda t: t.update({expert("up_proj.weight"): torch.ones(64, 96)}),
        r"no place for tensor .*4\.up_proj\.weight'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_tensors_that_are_wrong_are_named(fault: str, tmp_path: Path) -> None:
    scheme, edit, says = FAULTS[fault]
    folder = rewritten(quantized("qwen3_moe", scheme, tmp_path), edit)
    with pytest.raises(ModelLoadError, match=says):
        load(folder)
