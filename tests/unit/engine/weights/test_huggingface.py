"""Loading Hugging Face folders: shards, and one clear line for each way a folder can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.huggingface import SafetensorsFolder

CPU = torch.device("cpu")
TOKENS = [5, 9, 77, 120, 3]


def logits(path: Path) -> Tensor:
    return PagedRun(load_model(path, device=CPU, dtype=torch.float32).model, 1, 8).step({0: TOKENS})[0]


def test_shards_give_the_same_model(tmp_path: Path) -> None:
    whole = tiny_model("qwen2", tmp_path / "whole")
    sharded = tiny_model("qwen2", tmp_path / "sharded", max_shard_size="60KB")
    assert len(list(sharded.glob("model-*.safetensors"))) > 2
    assert torch.equal(logits(whole), logits(sharded))


def test_the_name_is_the_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama", tmp_path)
    monkeypatch.chdir(folder)
    loaded = load_model(Path(), device=CPU, dtype=torch.float32)
    assert loaded.name == "llama"
    assert loaded.tokenizer is None


def test_weights_outlive_their_file(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    with SafetensorsFolder(folder, CPU, torch.float32) as source:
        embedding = source.tensor("model.embed_tokens.weight", 131, 48)
    before = embedding.clone()
    (folder / "model.safetensors").write_bytes(b"")
    assert torch.equal(embedding, before)


def test_tensors_come_in_the_type_asked_for(tmp_path: Path) -> None:
    with SafetensorsFolder(tiny_model("llama", tmp_path), CPU, torch.bfloat16) as source:
        assert source.tensor("model.norm.weight", 48).dtype == torch.bfloat16


def edit_tensors(folder: Path, edit: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def truncate(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def _drop_norm(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.__delitem__("model.norm.weight"))


def _widen_norm(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(49)}))


def _claim_more_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))


def _claim_fewer_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))


def _add_a_bias(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({"model.layers.1.self_attn.q_proj.bias": torch.ones(96)}))


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "tensor missing": (_drop_norm, r"'model.norm.weight' is missing"),
    "wrong shape": (_widen_norm, r"'model.norm.weight' has shape \(49,\), the configuration wants \(48,\)"),
    "fewer layers than configured": (_claim_more_layers, r"layers.3.* is missing"),
    "more layers than configured": (_claim_fewer_layers, r"no place for tensor 'model.layers.2.*' and 8 others"),
    "a bias that the configuration does not know": (_add_a_bias, "no place for tensor .*q_proj.bias"),
    "no weights": (_no_weights, "no model.safetensors"),
    "weights cut in the data": (lambda f: truncate(f / "model.safetensors", 100_000), "truncated"),
    "weights cut in the header": (lambda f: truncate(f / "model.safetensors", 100), "truncated"),
    "weights empty": (lambda f: truncate(f / "model.safetensors", 0), "truncated"),
    "weights are something else": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 999), "not a safetensors"),
    "configuration cut": (lambda f: truncate(f / "config.json", 50), "not a model configuration"),
    "configuration without a type": (lambda f: (f / "config.json").write_text("{}"), "not a model configuration"),
    "configuration is a list": (lambda f: (f / "config.json").write_text("[1]"), "not a model configuration"),
    "configuration missing": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "configuration of nonsense": (
        lambda f: (f / "config.json").write_text('{"model_type": "llama", "num_attention_heads": "many"}'),
        "config.json can't be used",
    ),
    "heads that do not fit": (
        lambda f: (f / "config.json").write_text('{"model_type": "llama", "hidden_size": 9, "num_attention_heads": 2}'),
        "config.json can't be used",
    ),
    "tokenizer is something else": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer can't be read"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_folder_says_so_in_one_line(fault: str, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    breaks, message = BROKEN[fault]
    breaks(folder)
    with pytest.raises(ModelLoadError, match=message) as caught:
        logits(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    shard = min(folder.glob("model-*.safetensors"))
    shard.unlink()
    with pytest.raises(ModelLoadError, match=f"shards are missing: {shard.name}"):
        logits(folder)


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    first, second, *_ = shards_of(folder)
    save_file(load_file(first) | load_file(second), second)
    with pytest.raises(ModelLoadError, match=f"is in two shards, {first.name} and {second.name}"):
        logits(folder)


def test_shards_that_changed_their_names(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    first, second, *_ = shards_of(folder)
    first.rename(folder / "third")
    second.rename(first)
    (folder / "third").rename(second)
    with pytest.raises(ModelLoadError, match=f"is in ({first.name}|{second.name}), the index says"):
        logits(folder)


def test_a_shard_of_another_part(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    first, *_ = shards_of(folder)
    save_file({"other": torch.ones(1)}, first)
    with pytest.raises(ModelLoadError, match=f"is missing from {first.name}"):
        logits(folder)


def test_a_tensor_that_the_index_does_not_list(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    file = index["weight_map"].pop("lm_head.weight")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match=f"'lm_head.weight' is in {file}, and the index does not list it"):
        logits(folder)


@pytest.mark.parametrize("same", [True, False])
def test_an_index_beside_a_file_of_all_tensors(tmp_path: Path, *, same: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    names = [*load_file(folder / "model.safetensors"), *([] if same else ["lm_head.bias"])]
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if same:
        assert logits(folder).isfinite().all()
    else:
        with pytest.raises(ModelLoadError, match=r"has other tensors than model\.safetensors\.index\.json lists"):
            logits(folder)


def test_a_truncated_shard(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    shard = shards_of(folder)[2]
    truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(ModelLoadError, match=f"{shard.name}: truncated"):
        logits(folder)


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    with SafetensorsFolder(folder, CPU, torch.float32) as source:
        truncate(folder / "model.safetensors", 4000)
        last = max(source.places, key=lambda name: source.places[name].offset)
        with pytest.raises(ModelLoadError, match="truncated: it ends at byte"):
            source.tensor(last, *source.places[last].shape)


@pytest.mark.parametrize("file", ["../x.safetensors", "/etc/passwd", ""])
def test_an_index_that_leads_out_of_the_folder(file: str, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(ModelLoadError, match="is not the name of a file in this folder"):
        logits(folder)


def test_weights_of_another_kind_are_named(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(ModelLoadError, match=r"there are consolidated\.safetensors, pytorch_model\.bin"):
        logits(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_found_when_asked(value: float, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)

    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = value

    edit_tensors(folder, spoil)
    load_model(folder, device=CPU, dtype=torch.float32)
    with pytest.raises(ModelLoadError, match=r"layers\.1\.mlp\.up_proj\.weight': 1 of 3,840 values are NaN"):
        load_model(folder, device=CPU, dtype=torch.float32, finite=True)


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_broken_index(index: str, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelLoadError, match="not an index of shards"):
        logits(folder)


def test_quantized_tensors_are_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    edit_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(48, dtype=torch.int8)}))
    with pytest.raises(UnsupportedModelError, match="quantized"):
        logits(folder)


def test_an_unknown_quantization_is_refused(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "hqq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="'hqq' is not implemented"):
        logits(folder)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UnsupportedModelError, match="'mamba': recurrent state is not implemented"):
        logits(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "nowhere.gguf"])
def test_a_path_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such file or folder"):
        logits(tmp_path / name)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights")
    with pytest.raises(ModelLoadError, match=r"neither a Hugging Face folder nor a \.gguf file"):
        logits(path)


def test_buffers_and_a_tied_head_are_needless(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, tie_word_embeddings=True)
    expected = logits(folder)

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)

    edit_tensors(folder, add)
    assert torch.equal(logits(folder), expected)


def test_a_context_is_no_longer_than_wanted(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, max_position_embeddings=2**40)
    loaded = load_model(folder, device=CPU, dtype=torch.float32, max_context=300)
    assert loaded.config.max_context == 300
