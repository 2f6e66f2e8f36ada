"""GGUF files of architecture `deepseek2`, new and old ones, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant

from tests.support.gguf_files import Array, add_tensor, finish, write_gguf
from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.configuration import configuration
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.names import model_type_of
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
Change = Callable[[dict[str, Any]], None]  # of keys without the architecture's name
V2_LITE, V2, V3, FLASH = "V2-Lite", "V2", "V3", "GLM-4.7-Flash"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    V2_LITE: ("deepseek_v2", {"topk_method": "greedy", "n_group": 1, "topk_group": 1}),
    V2: ("deepseek_v2", {"q_lora_rank": 28}),
    V3: ("deepseek_v3", {}),
    FLASH: ("glm4_moe_lite", {"n_group": 1, "topk_group": 1}),
}
WHOLE_BLOCKS = {  # sizes that quantized types can hold
    "hidden_size": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32, "moe_intermediate_size": 32,
    "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip


def split(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """What makes keys, transposed, apart from what makes values, as newer converters have it."""
    found = {}
    for name, tensor in tensors.items():
        if not name.endswith("kv_b_proj.weight"):
            found[name] = tensor
            continue
        each = tensor.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
        plain = config["qk_nope_head_dim"]
        found[name.replace("kv_b_proj", "k_b_proj")] = np.ascontiguousarray(each[:, :plain].swapaxes(1, 2))
        found[name.replace("kv_b_proj", "v_b_proj")] = np.ascontiguousarray(each[:, plain:])
    return found


def described(config: dict[str, Any], *, old: bool) -> dict[str, Any]:
    """What the converter writes of a configuration beyond what all families have."""
    rank, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    key, value = config["qk_nope_head_dim"] + rotary, config["v_head_dim"]
    said: dict[str, Any] = {
        "vocab_size": config["vocab_size"],
        "attention.kv_lora_rank": rank,
        "attention.key_length": key if old else rank + rotary,
        "attention.value_length": value if old else rank,
        "rope.dimension_count": rotary,
        "leading_dense_block_count": 1,
        "expert_count": config["n_routed_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_weights_scale": config["routed_scaling_factor"],
    }
    if not old or config["n_group"] > 1:
        said |= {"expert_group_count": config["n_group"], "expert_group_used_count": config["topk_group"]}
    if config["q_lora_rank"]:
        said["attention.q_lora_rank"] = config["q_lora_rank"]
    if not old:
        said |= {"attention.head_count_kv": 1, "attention.key_length_mla": key, "attention.value_length_mla": value}
    if config["model_type"] != "deepseek_v2":
        said |= {"expert_gating_func": 2, "expert_weights_norm": True}
    if (rope := config["rope_parameters"])["rope_type"] == "yarn":
        said |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": rope["factor"],
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
            "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
        }
    return said


def write(
    kind: str,
    tmp_path: Path,
    change: Change = lambda _: None,
    *,
    old: bool = False,
    choose: Callable[[str], Quant] = lambda _: Quant.F32,
    more: Callable[[gguf.GGUFWriter], None] = lambda _: None,
    **sizes: Any,
) -> tuple[Path, Path]:
    """The model's folder, and its file."""
    family, own = KINDS[kind]
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    ropes = {} if kind == FLASH else {"rope_parameters": rope | {"mscale": 0.707, "mscale_all_dim": 0.707}}
    folder = tiny_model(family, tmp_path, **(ropes | own | sizes))
    said = described(json.loads((folder / "config.json").read_text()), old=old)
    change(said)

    def extra(writer: gguf.GGUFWriter) -> None:
        for name, value in said.items():
            writer.kv_data[0].pop(f"deepseek2.{name}", None)
            if value is not None:
                writer.add_key_value(f"deepseek2.{name}", value, _kind(value))
        more(writer)

    path = tmp_path / "d.gguf"
    convert = (lambda tensors, _: tensors) if old else split
    return folder, write_gguf(folder, path, architecture="deepseek2", extra=extra, choose=choose, convert=convert)


def _kind(value: Any) -> gguf.GGUFValueType:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return gguf.GGUFValueType.UINT32 if is_count else gguf.GGUFValueType.get_type(value)


def load(path: Path, tmp_path: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache", weights=weights)


def changed(**values: Any) -> Change:
    """Other values of keys; None for a key that is missing. "__" stands for a dot."""
    return lambda said: said.update({name.replace("__", "."): value for name, value in values.items()})


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_transformers(kind: str, old: bool, tmp_path: Path) -> None:
    folder, path = write(kind, tmp_path, old=old)
    loaded = load(path, tmp_path)
    assert loaded.config.family == ("deepseek_v2" if kind in {V2, V2_LITE} else "deepseek_v3")
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(folder, prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=True, overlap=True, prefix_cache=True))


@pytest.mark.parametrize("weights", ["auto", "stored"])
@pytest.mark.parametrize("kind", [V2_LITE, V3])
def test_quantized_files_stand_for_the_same_numbers(kind: str, weights: str, tmp_path: Path) -> None:
    """The tensors of latents are dequantized, since other numbers than latents are multiplied with them."""
    quantized = {V2_LITE: Quant.Q8_0, V3: Quant.Q4_0}[kind]
    sizes = WHOLE_BLOCKS | ({} if kind == V2_LITE else {"q_lora_rank": 32})
    choose = lambda name: Quant.F32 if "ffn_gate_inp" in name or not name.startswith("blk") else quantized  # noqa: E731
    _, path = write(kind, tmp_path, choose=choose, **sizes)
    loaded = load(path, tmp_path, weights)
    plain = load(path, tmp_path)
    assert (loaded.model.num_bytes < plain.model.num_bytes) == (weights == "stored")
    folders = (tmp_path / "cache" / "gguf").iterdir()
    [unpacked] = (each for each in folders if '"quantization_config"' not in (each / "config.json").read_text())
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(unpacked, prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=True, chunked=False, overlap=False, prefix_cache=False))


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        for name in ("nextn.eh_proj", "attn_k_b", "ffn_gate_exps"):
            add_tensor(writer, f"blk.3.{name}.weight", np.ones((2, 32), dtype=np.float32), Quant.F32)

    folder, path = write(FLASH, tmp_path, changed(block_count=4, nextn_predict_layers=1), more=more)
    loaded = load(path, tmp_path)
    assert (loaded.config.num_layers, loaded.config.unused) == (3, ())
    prompts = random_prompts(loaded.config.vocab_size)
    expected = generate(folder, prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, expected).check(options(preempted=False, chunked=False, overlap=False, prefix_cache=False))


UNKNOWN, WRONG = UnsupportedModelError, ModelLoadError
REFUSED: dict[str, tuple[str, Change, type[Exception], str]] = {
    "scores of neither": (V3, changed(expert_gating_func=3), UNKNOWN, "expert_gating_func 3 is not implemented"),
    "no scores": (V3, changed(expert_gating_func=None), UNKNOWN, "without deepseek2.expert_gating_func it is not"),
    "a correction of softmax": (V3, changed(expert_gating_func=1, expert_weights_norm=None), UNKNOWN, "has no place"),
    "no correction": (V2, changed(expert_gating_func=2), WRONG, r"exp_probs_b\.bias' is missing"),
    "kept groups not said": (V3, changed(expert_group_used_count=None), UNKNOWN, "without .*expert_group_used_count"),
    "groups that do not divide": (V3, changed(expert_group_count=3), UNKNOWN, "8 experts in 3 groups"),
    "weights of a sum of one": (V2, changed(expert_weights_norm=True), UNKNOWN, "norm_topk_prob"),
    "no multiplier of yarn": (
        V2, changed(rope__scaling__yarn_log_multiplier=None), UNKNOWN, "'yarn' with .*yarn_log_multiplier 0"
    ),
    "a multiplier of other scaling": (
        V2, changed(rope__scaling__type="linear", rope__scaling__original_context_length=None), UNKNOWN, "'linear' with"
    ),
    "another sharpness": (V3, changed(rope__scaling__yarn_attn_factor=0.5), UNKNOWN, "yarn_attn_factor 0.5 is not"),
    "queries that grow": (V3, changed(attention__temperature_scale=0.1), UNKNOWN, "temperature_scale 0.1"),
    "an indexer": (V3, changed(attention__indexer__top_k=64), UNKNOWN, "indexer.top_k 64 is not implemented"),
    "no sizes of heads": (
        V3, changed(attention__key_length_mla=None, attention__value_length_mla=None), WRONG, "attn_k_b without key_len"
    ),
    "sizes that contradict": (V3, changed(attention__key_length=99), WRONG, "key_length 99 and value_length 20 beside"),
    "sizes that swap": (
        V3, changed(attention__key_length_mla=20, attention__value_length_mla=10), WRONG, "the metadata wants"
    ),
    "heads that all rotate": (V3, changed(attention__key_length_mla=6), WRONG, "heads of 6 with 6 that rotate"),
    "no rank": (V3, changed(attention__kv_lora_rank=None), WRONG, "deepseek2.attention.kv_lora_rank' is missing"),
    "no rotary size": (V3, changed(rope__dimension_count=None), WRONG, "deepseek2.rope.dimension_count' is missing"),
    "a few KV heads": (V3, changed(attention__head_count_kv=2), WRONG, "head_count_kv is 2"),
    "fewer experts": (V3, changed(expert_count=16), WRONG, "the metadata wants 16 experts"),
    "more layers without experts": (V3, changed(leading_dense_block_count=2), WRONG, r"blk\.1\.ffn_\w+\.weight' is"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_contradicts_itself_or_is_not_known_is_named(what: str, tmp_path: Path) -> None:
    kind, change, error, named = REFUSED[what]
    _, path = write(kind, tmp_path, change)
    with pytest.raises(error, match=named):
        load(path, tmp_path)


@pytest.mark.parametrize("part", ["attn_k_b", "attn_v_b"])
def test_a_part_of_what_expands_latents_of_another_shape(part: str, tmp_path: Path) -> None:
    folder, _ = write(V3, tmp_path)
    config = json.loads((folder / "config.json").read_text())

    def turned(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
        name = part.removeprefix("attn_")
        found = split(tensors, config)
        return {key: each.swapaxes(1, 2).copy() if f"{name}_proj" in key else each for key, each in found.items()}

    def extra(writer: gguf.GGUFWriter) -> None:
        for name, value in described(config, old=False).items():
            writer.kv_data[0].pop(f"deepseek2.{name}", None)
            writer.add_key_value(f"deepseek2.{name}", value, _kind(value))

    path = write_gguf(folder, tmp_path / "t.gguf", architecture="deepseek2", extra=extra, convert=turned)
    with pytest.raises(ModelLoadError, match="attn_k_b and attn_v_b have shapes"):
        load(path, tmp_path)


@pytest.mark.parametrize(("experts", "known"), [(64, True), (160, False), (256, False)])
def test_large_old_files_do_not_say_their_groups(experts: int, known: bool, tmp_path: Path) -> None:
    sizes = {"n_routed_experts": experts, "moe_intermediate_size": 8}
    change = changed(expert_group_count=None, expert_group_used_count=None)
    _, path = write(V2_LITE, tmp_path, change, old=True, **sizes)
    if known:
        assert configuration(GGUFFile(path)).topk_method == "greedy"
        return
    with pytest.raises(UnsupportedModelError, match=f"without deepseek2.expert_group_count the groups that {experts}"):
        configuration(GGUFFile(path))


@pytest.mark.parametrize(("layers", "vocabulary", "known"), [(47, 154_880, True), (48, 154_880, True), (47, 9, False)])
def test_scores_of_glm_flash_are_known_by_its_sizes(layers: int, vocabulary: int, known: bool, tmp_path: Path) -> None:
    """Its configuration does not say them, so that its files do not, either."""
    path = tmp_path / "f.gguf"
    writer = gguf.GGUFWriter(path, "deepseek2")
    writer.add_block_count(layers)
    writer.add_expert_count(64)
    writer.add_tensor("token_embd.weight", np.zeros((vocabulary, 1), dtype=np.float32))
    writer.add_tensor("blk.1.exp_probs_b.bias", np.zeros(64, dtype=np.float32))
    finish(writer)
    if known:
        assert model_type_of(GGUFFile(path)) == "deepseek_v3"
        return
    with pytest.raises(UnsupportedModelError, match=r"without deepseek2\.expert_gating_func"):
        model_type_of(GGUFFile(path))


def test_a_scale_of_zero_is_none(tmp_path: Path) -> None:
    """As llama.cpp reads it; experts that count nothing would be left."""
    _, path = write(V3, tmp_path, lambda said: said.update({"expert_weights_scale": 0.0}))
    assert configuration(GGUFFile(path)).routed_scaling_factor == 1.0
