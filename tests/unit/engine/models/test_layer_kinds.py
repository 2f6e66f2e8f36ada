"""An abridged model has a layer of each kind: it runs all kernels of the whole one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.checkpoints import SCHEMES
from tests.support.loading import load_model
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import FAMILIES, LATENT, RECURRENT, tiny_model
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.layer_kinds import kind_of, one_of_each_kind
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.paged import AttentionParams

CPU = torch.device("cpu")
TWO_KINDS = {
    "gemma2",
    "gemma3_text",
    "smollm3",
    "cohere2",
    "gpt_oss",
    "qwen3_moe",
    "glm4_moe",
    *RECURRENT,
    "olmo3",
    "gemma4_text",
    *LATENT,
}
THREE_KINDS = {"nemotron_h", "llama4_text"}
CHANGES = {  # of a weight [outputs, inputs]
    "the same": lambda weight: weight.clone(),
    "type": lambda weight: weight.half(),
    "shape": lambda weight: weight[:-16].clone(),
    "stride": lambda weight: weight.t().contiguous().t(),
}


def loaded(
    family: str, folder: Path, weights: str = "auto", dtype: torch.dtype = torch.bfloat16
) -> tuple[Model, Decoder]:
    model = load_model(tiny_model(family, folder), device=CPU, dtype=dtype, weights=weights).model
    assert isinstance(model.decoder, Decoder)
    return model, model.decoder


def layer(folder: Path) -> PreNormLayer:
    first: Any = loaded("llama", folder)[1].layers[0]
    assert isinstance(first, PreNormLayer)
    return first


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("weights", "dtype"), [("auto", torch.bfloat16), ("fp8", torch.bfloat16), ("auto", torch.float32)], ids=str
)
def test_a_model_is_abridged_to_a_layer_of_each_kind_and_its_cache(
    family: str, weights: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model, decoder = loaded(family, tmp_path, weights, dtype)
    cache = KVCache.allocate(model.config, 2, 16, model.dtype, CPU, slots=2)
    abridged, its_cache = model.abridged(cache)
    assert isinstance(abridged.decoder, Decoder)
    kept = 3 if family in THREE_KINDS else 2 if family in TWO_KINDS else 1
    assert [id(each) for each in abridged.decoder.layers] == [id(each) for each in decoder.layers[:kept]]
    assert [each[0].data_ptr() for each in its_cache.layers] == [each[0].data_ptr() for each in cache.layers[:kept]]
    assert replace(abridged.decoder, layers=decoder.layers) == decoder


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_of_a_gpu_are_chosen_by_alignment() -> None:
    one = torch.zeros(1024, device="cuda")
    assert kind_of(one[:64]) == kind_of(one[64:128]) != kind_of(one[1:65])


@pytest.mark.parametrize("change", CHANGES)
def test_a_kind_says_what_tensors_look_like_and_not_their_values(change: str, tmp_path: Path) -> None:
    one = layer(tmp_path)
    qkv: Any = one.attention.qkv.layer
    before, qkv._weight = kind_of(one), CHANGES[change](qkv._weight)
    assert (kind_of(one) == before) is (change == "the same")


def test_a_kind_has_the_settings_and_the_parts_that_are_missing(tmp_path: Path) -> None:
    one = layer(tmp_path)
    attention = one.attention
    others = [
        replace(attention, params=AttentionParams(window=8)),
        replace(attention, norm_eps=1e-3),
        replace(attention, rotary=None),
        replace(attention, qkv=attention.output),
    ]
    kinds = {kind_of(replace(one, attention=each)) for each in (attention, *others)}
    assert len(kinds) == 1 + len(others)
    assert kind_of(replace(one, attention=replace(attention))) in kinds


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantized_layers_are_of_one_kind(scheme: str, tmp_path: Path) -> None:
    folder = quantized_model(SCHEMES[scheme], tmp_path, "qwen2", hidden_size=256, intermediate_size=256)
    decoder = load_model(folder, device=CPU, dtype=torch.bfloat16).model.decoder
    assert isinstance(decoder, Decoder)
    assert one_of_each_kind(decoder.layers) == [0]


def test_caches_that_look_different_make_kinds(tmp_path: Path) -> None:
    model, _ = loaded("llama", tmp_path)
    plain, wide = (KVCache.allocate(model.config, 2, size, model.dtype, CPU).layers for size in (16, 32))
    _, cache = model.abridged(KVCache((plain[0], wide[1], plain[2])))
    assert [layer.keys.shape[1] for layer in cache.layers] == [16, 32]


def test_what_cannot_be_compared_is_of_a_kind_of_its_own() -> None:
    one: dict[str, int] = {}
    assert kind_of((one,)) == kind_of((one,))
    assert kind_of((one,)) != kind_of(({},))
