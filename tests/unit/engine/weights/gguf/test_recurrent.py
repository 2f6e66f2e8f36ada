"""GGUF files of recurrent families, as llama.cpp's converter lays out their tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from safetensors.torch import load_file

from tests.support.gguf_files import Array, Convert, Extra, write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(3)).tolist()
NO_INTERVAL = {"layer_types": ["linear_attention", "full_attention"] * 2, "num_hidden_layers": 4}


def delta(writer: gguf.GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(3)
    writer.add_ssm_state_size(8)
    writer.add_ssm_group_count(2)
    writer.add_ssm_time_step_rank(6)
    writer.add_ssm_inner_size(6 * 12)
    writer.add_full_attention_interval(2)
    if writer.arch != "qwen3next":
        writer.add_rope_dimension_sections([2, 1, 1, 0])


def experts(writer: gguf.GGUFWriter) -> None:
    delta(writer)
    writer.add_expert_count(6)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(32)
    writer.add_expert_shared_feed_forward_length(24)


def tiled(rows: Array, config: dict[str, Any]) -> Array:
    """`_reorder_v_heads` of llama.cpp's converter, along the first axis."""
    keys = config["linear_num_key_heads"]
    grouped = rows.reshape(keys, config["linear_num_value_heads"] // keys, -1, *rows.shape[1:])
    return np.ascontiguousarray(grouped.swapaxes(0, 1).reshape(rows.shape))


def grouped(rows: Array, _config: dict[str, Any]) -> Array:
    return rows


def qwen35(
    tensors: dict[str, Array], config: dict[str, Any], order: Callable[[Array, dict[str, Any]], Array] = tiled
) -> dict[str, Array]:
    """`_LinearAttentionVReorderBase` and `Qwen3NextModel` of the converter."""
    queries = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    made: dict[str, Array] = {}
    for name, tensor in tensors.items():
        match name.rpartition("linear_attn.")[2]:
            case "in_proj_qkv.weight":
                made[name] = np.concatenate((tensor[:queries], order(tensor[queries:], config)))
            case "conv1d.weight":
                made[name] = np.concatenate((tensor[:queries], order(tensor[queries:], config))).squeeze()
            case "in_proj_z.weight" | "in_proj_a.weight" | "in_proj_b.weight":
                made[name] = order(tensor, config)
            case "out_proj.weight":
                made[name] = np.ascontiguousarray(order(tensor.T, config).T)
            case "A_log":
                made[name] = order(-np.exp(tensor), config)
            case "dt_bias":
                made[name.replace("dt_bias", "dt_proj.bias")] = order(tensor, config)
            case other:
                one_plus = name.endswith("norm.weight") and other != "norm.weight"
                made |= apart(name, tensor + 1 if one_plus else tensor)
    return made


def apart(name: str, tensor: Array) -> dict[str, Array]:
    """Stacks of experts one by one, as the tables have them; a gate of one row without its axis."""
    stem, _, stack = name.rpartition(".")
    if stack not in {"gate_up_proj", "down_proj"}:
        return {name: tensor.squeeze() if name.endswith("shared_expert_gate.weight") else tensor}
    halves = {"gate_proj": 0, "up_proj": 1}
    parts = {stack: tensor} if stack == "down_proj" else {
        part: np.ascontiguousarray(np.split(tensor, 2, axis=1)[half]) for part, half in halves.items()
    }  # fmt: skip
    return {f"{stem}.{at}.{part}.weight": each for part, rows in parts.items() for at, each in enumerate(rows)}


def lfm2(tensors: dict[str, Array], _config: dict[str, Any]) -> dict[str, Array]:
    return {name: tensor.squeeze() if "conv.conv" in name else tensor for name, tensor in tensors.items()}


def short(writer: gguf.GGUFWriter) -> None:
    writer.add_shortconv_l_cache(3)
    writer.kv_data[0].pop("lfm2.attention.head_count_kv")
    writer.add_head_count_kv([0, 2, 0])


def mamba(tensors: dict[str, Array], groups: int) -> dict[str, Array]:
    """`Mamba2Model` of the converter, and its tables' names."""
    made: dict[str, Array] = {}
    for name, tensor in tensors.items():
        match name.rpartition(".")[2], name.rpartition("mamba.")[2].rpartition("mixer.")[2]:
            case "A_log", _:
                made[name] = -np.exp(tensor)[:, None]
            case "D", _:
                made[name] = tensor[:, None]
            case "dt_bias", _:
                made[name.replace("dt_bias", "dt.bias" if "mixer" in name else "dt_proj.bias")] = tensor
            case _, "conv1d.weight":
                made[name] = tensor.squeeze()
            case _, "norm.weight" if "mamba" in name or "mixer" in name:
                made[name] = tensor.reshape(groups, -1)
            case _:
                made[name] = tensor
    return made


def falcon(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """`FalconH1Model` of the converter, which multiplies weights by the multipliers."""
    attended, keys = config["attention_in_multiplier"], config["mamba_n_groups"] * config["mamba_d_state"]
    inner, heads = config["mamba_d_ssm"], config["mamba_n_heads"]
    rows = np.repeat(config["ssm_multipliers"], [inner, inner, keys, keys, heads]).astype(np.float32)[:, None]
    factors: dict[str, Any] = {
        "down_proj": config["mlp_multipliers"][1], "gate_proj": config["mlp_multipliers"][0],
        "k_proj": config["key_multiplier"] * attended, "q_proj": attended, "v_proj": attended,
        "o_proj": config["attention_out_multiplier"], "out_proj": config["ssm_out_multiplier"],
        "in_proj": config["ssm_in_multiplier"] * rows, "lm_head": config["lm_head_multiplier"],
        "embed_tokens": config["embedding_multiplier"],
    }  # fmt: skip
    scaled = {
        name: (tensor * factors.get(name.split(".")[-2], 1.0)).astype(np.float32) for name, tensor in tensors.items()
    }
    return mamba(scaled, config["mamba_n_groups"])


def nemotron(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    apart = {
        name.replace("backbone.", "model.").replace("mixer.", "mlp.") if "mixer.experts" in name else name: tensor
        for name, tensor in tensors.items()
    }
    return mamba(apart, config["n_groups"])


def space(writer: gguf.GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(3)
    writer.add_ssm_state_size(8)
    writer.add_ssm_group_count(2)
    writer.add_ssm_time_step_rank(6)
    writer.add_ssm_inner_size(60)


def nemotron_layers(writer: gguf.GGUFWriter) -> None:
    """Of a state space, experts or an MLP, attention, two more, and a state space."""
    space(writer)
    for key in ("attention.head_count_kv", "feed_forward_length"):
        writer.kv_data[0].pop(f"{writer.arch}.{key}")
    writer.add_head_count_kv([0, 0, 2, 0, 0, 0])
    writer.add_feed_forward_length([0, 16, 0, 16, 16, 0])


def nemotron_experts(writer: gguf.GGUFWriter) -> None:
    nemotron_layers(writer)
    writer.add_expert_count(8)
    writer.add_expert_used_count(3)
    writer.add_expert_feed_forward_length(16)
    writer.add_expert_shared_feed_forward_length(24)
    writer.add_expert_shared_count(1)
    writer.add_expert_group_count(4)
    writer.add_expert_group_used_count(2)
    writer.add_expert_weights_norm(True)
    writer.add_expert_weights_scale(1.5)
    writer.add_moe_latent_size(24)


def qwen3_next(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """`Qwen3NextModel` of the converter: queries, keys and values of all heads in one tensor, gates in another."""
    heads, keys = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    made: dict[str, Array] = {}
    for name, tensor in qwen35(tensors, config, grouped).items():
        if "in_proj_qkvz" in name:
            parts = np.split(tensor.reshape(heads, -1, tensor.shape[1]), [keys, 2 * keys, 2 * keys + values], axis=1)
            kinds = [each.reshape(-1, tensor.shape[1]) for each in parts]
            made[name.replace("qkvz", "qkv")] = np.concatenate(kinds[:3])
            made[name.replace("qkvz", "z")] = kinds[3]
        else:
            made[name] = tensor
    return made


def granite(tensors: dict[str, Array], config: dict[str, Any]) -> dict[str, Array]:
    """`GraniteMoeModel` of the converter, under names of other families that its tables have, too."""
    shared = "ffn_{}_shexp" if config["num_local_experts"] else "ffn_{}"
    made: dict[str, Array] = {}
    for name, tensor in mamba(tensors, config["mamba_n_groups"]).items():
        layer = name.removeprefix("model.layers.").partition(".")[0]
        for part, form in (("block_sparse_moe", "ffn_{}_exps"), ("shared_mlp", shared)):
            if f"{part}.input_linear" in name:
                for kind, half in zip(("gate", "up"), np.split(tensor, 2, axis=-2), strict=True):
                    made[f"blk.{layer}.{form.format(kind)}.weight"] = np.ascontiguousarray(half)
            elif f"{part}.output_linear" in name:
                made[f"blk.{layer}.{form.format('down')}.weight"] = tensor
        if "_linear" not in name:
            made[name] = tensor
    return made


def granite_scales(writer: gguf.GGUFWriter) -> None:
    writer.add_attention_scale(0.2)
    writer.add_embedding_scale(6.0)
    writer.add_residual_scale(0.4)
    writer.add_logit_scale(3.0)
    space(writer)
    writer.add_ssm_inner_size(96)
    writer.kv_data[0].pop(f"{writer.arch}.attention.head_count_kv")
    writer.add_head_count_kv([0, 2, 0])


def granite_experts(writer: gguf.GGUFWriter) -> None:
    granite_scales(writer)
    writer.add_expert_count(5)
    writer.add_expert_used_count(2)
    writer.add_expert_shared_feed_forward_length(40)


class Case(NamedTuple):
    """A family's file: its architecture, fields of the model, and what the converter writes."""

    architecture: str
    fields: dict[str, Any]
    metadata: Extra
    convert: Convert


_NEMOTRON = ["linear_attention", "moe", "full_attention", "moe", "moe", "linear_attention"]
CASES = {
    "qwen3_5_text": Case("qwen35", NO_INTERVAL, delta, qwen35),
    "qwen3_5_moe_text": Case("qwen35moe", NO_INTERVAL | {"shared_expert_intermediate_size": 24}, experts, qwen35),
    "qwen3_next": Case("qwen3next", NO_INTERVAL | {"mlp_only_layers": []}, experts, qwen3_next),
    "granitemoehybrid": Case("granitehybrid", {}, granite_experts, granite),
    "granitemoehybrid, dense": Case(
        "granitehybrid",
        {"num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 40},
        granite_scales,
        granite,
    ),
    "falcon_h1": Case("falcon-h1", {"head_dim": 8}, space, falcon),
    "falcon_h1, norms": Case(
        "falcon-h1", {"head_dim": 8, "mamba_rms_norm": True, "mamba_norm_before_gate": False}, space, falcon
    ),
    "nemotron_h": Case(
        "nemotron_h_moe", {"layers_block_type": _NEMOTRON, "moe_latent_size": 24}, nemotron_experts, nemotron
    ),
    "nemotron_h, dense": Case(
        "nemotron_h",
        {"layers_block_type": [kind.replace("moe", "mlp") for kind in _NEMOTRON], "intermediate_size": 16},
        nemotron_layers,
        nemotron,
    ),
    "lfm2": Case("lfm2", {"block_auto_adjust_ff_dim": False}, short, lfm2),
}


def load(path: Path, tmp_path: Path, weights: str = "auto") -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache", weights=weights)


def written(family: str, tmp_path: Path, kind: Quant = Quant.F32, **sizes: Any) -> tuple[Path, Path]:
    """A model's folder and its file."""
    case = CASES[family]
    folder = tiny_model(family.partition(",")[0], tmp_path, **{**case.fields, **sizes})
    path = write_gguf(
        folder,
        tmp_path / "t.gguf",
        architecture=case.architecture,
        extra=case.metadata,
        convert=case.convert,
        choose=lambda name: Quant.F32 if "conv" in name or "shexp" in name else kind,
    )
    return folder, path


@pytest.mark.parametrize("family", CASES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder, path = written(family, tmp_path)
    loaded = load(path, tmp_path)
    assert loaded.config.family == family.partition(",")[0]
    got = PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0]
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


def test_matrices_whose_columns_change_places_do_not_stay_quantized(tmp_path: Path) -> None:
    """Others do, and stand for the same numbers."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "linear_value_head_dim": 16, "head_dim": 32}
    case = CASES["qwen3_5_text"]
    folder = tiny_model("qwen3_5_text", tmp_path, **case.fields, **sizes)

    def metadata(writer: gguf.GGUFWriter) -> None:
        case.metadata(writer)
        writer.add_ssm_inner_size(6 * 16)

    path = write_gguf(
        folder, tmp_path / "t.gguf", architecture="qwen35", extra=metadata, convert=qwen35,
        choose=lambda name: Quant.F32 if "conv" in name or "token_embd" in name else Quant.Q8_0,
    )  # fmt: skip
    plain, stored = load(path, tmp_path), load(path, tmp_path, "stored")
    assert stored.model.num_bytes < plain.model.num_bytes
    got, wanted = (PagedRun(each.model, 1, 48).step({0: TOKENS})[0] for each in (stored, plain))
    torch.testing.assert_close(got, wanted, atol=1e-3, rtol=0)


def test_what_states_decay_by_is_not_rounded(tmp_path: Path) -> None:
    _, path = written("qwen3_5_text", tmp_path)
    load_model(path, device=CPU, dtype=torch.bfloat16, cache_dir=tmp_path / "cache")
    [folder] = (tmp_path / "cache" / "gguf").iterdir()
    kinds = {name: tensor.dtype for name, tensor in load_file(folder / "model.safetensors").items()}
    exact = {name for name, kind in kinds.items() if kind == torch.float32}
    assert exact == {f"model.layers.{layer}.linear_attn.{name}" for layer in (0, 2) for name in ("A_log", "dt_bias")}


@pytest.mark.parametrize("heads", [[0, 0, 0], [0, 2, 1], "two"])
def test_numbers_of_kv_heads_that_make_no_model(heads: object, tmp_path: Path) -> None:
    case = CASES["lfm2"]
    folder = tiny_model("lfm2", tmp_path, **case.fields)

    def metadata(writer: gguf.GGUFWriter) -> None:
        short(writer)
        writer.kv_data[0].pop("lfm2.attention.head_count_kv")
        key = "lfm2.attention.head_count_kv"
        kind = gguf.GGUFValueType.ARRAY if isinstance(heads, list) else gguf.GGUFValueType.STRING
        writer.add_key_value(key, heads, kind, *([gguf.GGUFValueType.INT32] if isinstance(heads, list) else []))

    path = write_gguf(folder, tmp_path / "t.gguf", architecture="lfm2", extra=metadata, convert=lfm2)
    with pytest.raises(ModelLoadError, match="head_count_kv"):
        load(path, tmp_path)


@pytest.mark.parametrize("key", ["attention.head_count_kv", "feed_forward_length"])
@pytest.mark.parametrize("said", [2, [0, 2]])
def test_lists_that_say_what_layers_are_must_be_whole(key: str, said: int | list[int], tmp_path: Path) -> None:
    case = CASES["nemotron_h, dense"]

    def metadata(writer: gguf.GGUFWriter) -> None:
        nemotron_layers(writer)
        writer.kv_data[0].pop(f"nemotron_h.{key}")
        (writer.add_head_count_kv if "head" in key else writer.add_feed_forward_length)(said)

    folder = tiny_model("nemotron_h", tmp_path, **case.fields)
    path = write_gguf(
        folder, tmp_path / "t.gguf", architecture="nemotron_h", extra=metadata, convert=nemotron,
        choose=lambda _: Quant.F32,
    )  # fmt: skip
    with pytest.raises(ModelLoadError, match=f"'nemotron_h.{key}' is .*: this architecture needs a list of 6 numbers"):
        load(path, tmp_path)
