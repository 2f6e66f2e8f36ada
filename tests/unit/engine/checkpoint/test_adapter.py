"""adapter_config.json: what it says, and what is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.support.peft_folders import small_adapter
from thothy_ai.engine.api.adapters import adapters_of
from thothy_ai.engine.api.errors import AdapterLoadError, InvalidRequestError, UnsupportedAdapterError
from thothy_ai.engine.checkpoint.adapter import AdapterFiles, inside, read_adapter_configuration


def digest(folder: Path) -> str:
    return AdapterFiles.read(folder).digest


def test_ranks_and_scales(tmp_path: Path) -> None:
    read = read_adapter_configuration(
        small_adapter(
            tmp_path,
            rank=8,
            lora_alpha=16,
            rank_pattern={"v_proj": 2, r"layers\.1\.self_attn\.q_proj": 4},
            alpha_pattern={"v_proj": 3},
            base_model_name_or_path="house/base",
        )
    )
    assert [read.rank_of(f"model.layers.{n}") for n in ("1.self_attn.q_proj", "0.self_attn.v_proj", "0.x")] == [4, 2, 8]
    assert read.scale_of("model.layers.0.self_attn.v_proj") == 3 / 2
    assert read.scale_of("model.layers.1.self_attn.q_proj") == 16 / 4
    assert (read.max_rank, read.base, read.invocation_tokens) == (8, "house/base", ())
    names = {"^model.layers.0.x": 1, r"layers\.(1|2)\..*": 2, r"layers\.\d+\.x|head-1_a$": 3}
    read = read_adapter_configuration(small_adapter(tmp_path, rank_pattern=names))
    assert [read.rank_of(f"model.layers.{n}") for n in ("0.x", "2.x.y", "30.x", "3.y")] == [1, 2, 3, 4]
    assert read.rank_of("a.head-1_a") == 3
    stabilized = read_adapter_configuration(small_adapter(tmp_path, rank=8, lora_alpha=16, use_rslora=True))
    assert stabilized.scale_of("x") == 16 / math.sqrt(8)


@pytest.mark.parametrize(
    "fields",
    [
        {"peft_type": "IA3"},
        {"use_dora": True},
        {"use_qalora": True},
        {"bias": "all"},
        {"lora_bias": True},
        {"modules_to_save": ["lm_head"]},
        {"layer_replication": [[0, 2]]},
        {"init_lora_weights": "pissa_niter_4"},
        {"init_lora_weights": "olora"},
        {"trainable_token_indices": [3]},
        {"target_parameters": ["mlp.experts.gate_up_proj"]},
        {"fan_in_fan_out": True},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_peft_has_and_we_do_not_is_refused_by_name(fields: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedAdapterError, match=next(iter(fields))):
        read_adapter_configuration(small_adapter(tmp_path, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 0},
        {"r": 257},
        {"r": True},
        {"lora_alpha": math.nan},
        {"lora_alpha": "16"},
        {"rank_pattern": {"(": 4}},
        {"rank_pattern": [4]},
        {"alpha_pattern": {"((.*)*)*x": 4}},  # each of these may take longer than a day
        {"alpha_pattern": {r"(\w+)+\.x": 4}},
        {"rank_pattern": {"(m|m)(o|o)(d|d)(e|e)(l|l)x": 4}},
        {"rank_pattern": {".*" * 20 + "x": 4}},
        {"rank_pattern": {"(?=x)": 4}},
        {"alora_invocation_tokens": []},
        {"alora_invocation_tokens": ["<a>"]},
    ],
    ids=str,
)
def test_values_that_make_no_sense(fields: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(AdapterLoadError, match=next(iter(fields))):
        read_adapter_configuration(small_adapter(tmp_path, **fields))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    folder = small_adapter(tmp_path / "a")
    for content in ("{", "[]", '{"r": 1' * 100_000):
        (folder / "adapter_config.json").write_text(content)
        with pytest.raises(AdapterLoadError, match="adapter_config"):
            read_adapter_configuration(folder)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(AdapterLoadError, match="No such file"):
        AdapterFiles.read(folder)
    with pytest.raises(AdapterLoadError, match="No such file"):
        read_adapter_configuration(tmp_path / "none")


def test_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder, other = small_adapter(tmp_path / "a"), small_adapter(tmp_path / "b")
    weights = folder / "adapter_model.safetensors"
    weights.unlink()
    weights.symlink_to(other / weights.name)
    with pytest.raises(AdapterLoadError, match="leads out of its folder"):
        AdapterFiles.read(folder)
    (tmp_path / "link").symlink_to(other)  # of the whole folder, which a user may name as he likes
    assert inside(tmp_path / "link", weights.name).is_file()


def test_the_digest_is_of_weights_and_configuration(tmp_path: Path) -> None:
    first, same = (digest(small_adapter(tmp_path / name, seed=1)) for name in "ab")
    assert first == same
    assert first != digest(small_adapter(tmp_path / "c", seed=2))
    configuration = tmp_path / "b/adapter_config.json"
    configuration.write_text(json.dumps(json.loads(configuration.read_text()) | {"lora_alpha": 1}))
    assert first != digest(tmp_path / "b")


def test_names_and_folders() -> None:
    assert adapters_of(["acme=/a=b", "x-1.y_2=/c"]) == {"acme": Path("/a=b"), "x-1.y_2": Path("/c")}
    for wrong in (["acme"], ["=x"], ["a/b=x"], ["acme="], ["a=x", "a=y"], [f"{'a' * 101}=x"]):
        with pytest.raises(InvalidRequestError) as refused:
            adapters_of(wrong)
        assert refused.value.field == "adapter"
