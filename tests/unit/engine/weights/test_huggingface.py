"""Loading Hugging Face folders: shards, and one clear line for each way a folder can be wrong."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.support.paged_run import PagedRun
from tests.support.shards import write_shards
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights import huggingface, reading
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.engine.weights.loader import load_model
from thothy_ai.engine.weights.reading import ParallelReader, Reading
from thothy_ai.engine.weights.shard import StoredTensor

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


@pytest.mark.parametrize(
    ("own", "named", "ends"),
    [("<end>", 5, (5, 3)), ("<end>", [3, 5], (3, 5)), ("<far>", 5, (5,)), (None, 5, (5,)), ("<end>", None, (3,))],
)
def test_the_tokenizer_s_end_of_text_counts_beside_the_configuration_s(
    tmp_path: Path, own: str | None, named: object, ends: tuple[int, ...]
) -> None:
    folder = tiny_model("llama", tmp_path, eos_token_id=named)
    (folder / "generation_config.json").unlink(missing_ok=True)
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "c": 2, "<end>": 3, "<far>": 131}, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=own).save_pretrained(folder)
    assert load_model(folder, device=CPU, dtype=torch.float32).config.eos_token_ids == ends


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


def test_tensors_arrive_whole_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 100 bytes, and little that may be read ahead: both end within tensors."""
    monkeypatch.setattr(reading, "PIECE_BYTES", 100)
    monkeypatch.setattr(huggingface, "_AHEAD_BYTES", {"cpu": 1000})
    types = [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.float8_e4m3fn, torch.bool]
    tensors = {f"t{at}": torch.randint(0, 2, (at % 7, 2 * at)).to(types[at % 6]) for at in range(60)}
    tensors["number"] = torch.tensor(3.5)
    folder = write_shards(tmp_path, tensors, shards=4)
    order = sorted(tensors, key=lambda name: name[::-1])
    reported: list[tuple[int, int]] = []
    with SafetensorsFolder(folder, CPU, torch.float32, on_read=lambda *seen: reported.append(seen)) as source:
        source.expect({name: tuple(tensors[name].shape) for name in order})
        for name in [*order[40:], *order[:40]]:
            found = source.stored(name, *tensors[name].shape, dtype=tensors[name].dtype)
            assert found.dtype == tensors[name].dtype
            assert torch.equal(found.view(torch.uint8) if found.dim() else found, _bytes(tensors[name])), name
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert reported[-1] == (total, total)
    assert reported == sorted(reported)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dim() else tensor


def test_read_ahead_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    begin = ParallelReader.start

    def counted(self: ParallelReader, place: StoredTensor) -> Reading:
        started.append(place.path.name)
        return begin(self, place)

    monkeypatch.setattr(ParallelReader, "start", counted)
    monkeypatch.setattr(huggingface, "_AHEAD_BYTES", {"cpu": 3000})
    folder = write_shards(tmp_path, {f"t{at:02}": torch.ones(250) for at in range(20)}, shards=3)
    with SafetensorsFolder(folder, CPU, torch.float32) as source:
        source.expect({f"t{at:02}": (250,) for at in range(20)})
        source.tensor("t00", 250)
        assert len(started) == 4, "the one that was asked for, and three of 1,000 bytes"
        for at in range(1, 20):
            source.tensor(f"t{at:02}", 250)
    assert len(started) == 20


def test_a_missing_shard_stops_the_threads(tmp_path: Path) -> None:
    folder = write_shards(tmp_path, {"a": torch.ones(9), "b": torch.ones(9)}, shards=2)
    source = SafetensorsFolder(folder, CPU, torch.float32)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with source:
        source.tensor("a", 9)
        with pytest.raises(ModelLoadError, match="can't be read: No such file"):
            source.tensor("b", 9)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weights")]


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


def end_tokens(folder: Path, tokenizer: PreTrainedTokenizerFast | None, **configured: object) -> tuple[int, ...]:
    """Of a model whose two configurations have these tokens, with this tokenizer."""
    for name, value in configured.items():
        path = folder / f"{name}.json"
        content = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps(content | {"eos_token_id": value}))
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return load_model(folder, device=CPU, dtype=torch.float32).config.eos_token_ids


def test_end_tokens_of_all_that_name_some(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=700)
    assert end_tokens(folder, make_tokenizer(), config=[5, 6], generation_config=[6, 9]) == (5, 6, 9, 2)
    assert end_tokens(folder, None, config=None, generation_config=None) == (2,), "the tokenizer's alone"
    assert end_tokens(folder, None, config=-1, generation_config=700) == (2,), "others are beyond the vocabulary"


@pytest.mark.parametrize("unknown", [None, -1, 131, [500, 501]])
def test_a_model_without_an_end_token_is_refused(unknown: object, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    with pytest.raises(ModelLoadError, match="no end-of-text token is known") as caught:
        end_tokens(folder, None, config=unknown, generation_config=None)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def turns(begin: str, end: str) -> str:
    return "{% for m in messages %}" + begin + "{{ m.content }}" + end + "{% endfor %}"


TURNS = {  # as models write them, and the special token that ends an answer
    "gemma": (turns("<start_of_turn>{{ m.role }}\n", "<end_of_turn>\n"), "<end_of_turn>"),
    "llama 3": (turns("<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n", "<|eot_id|>"), "<|eot_id|>"),
    "glm": (turns("<|{{ m.role }}|>\n", ""), "<|user|>"),
    "mistral": (turns("[INST]", "[/INST]{{ eos_token }}"), "[/INST]"),
    "plain": (turns("", ". "), None),
    "refuses": ("{{ raise_exception('no') }}", None),
    "gpt-oss": (turns("<|channel|>", "<|end|>"), None),
}
NAMES = ("<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|user|>",
         "<|assistant|>", "[INST]", "[/INST]", "<|end|>")  # fmt: skip


@pytest.mark.parametrize("model", TURNS)
def test_what_the_template_writes_after_an_answer_ends_it(model: str, tmp_path: Path) -> None:
    template, end = TURNS[model]
    folder = tiny_model("llama", tmp_path, vocab_size=730)
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [*NAMES, *(["<|channel|>"] if model == "gpt-oss" else [])]}
    )
    tokenizer.chat_template = template
    expected = (5, *([] if end is None else [tokenizer.convert_tokens_to_ids(end)]), 2)
    (folder / "generation_config.json").unlink(missing_ok=True)
    assert end_tokens(folder, tokenizer, config=5) == expected
    assert end_tokens(folder, None, config=5, generation_config=[5, 7]) == (5, 7, 2), "what it lists is all"


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


def test_all_shards_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama", tmp_path, max_shard_size="60KB")
    asked: list[tuple[int, ...]] = []

    def refused(descriptor: int, *rest: int) -> None:
        asked.append((os.fstat(descriptor).st_ino, *rest))
        raise OSError("not on this file system")

    monkeypatch.setattr(os, "posix_fadvise", refused)
    logits(folder)
    shards = {path.stat().st_ino for path in folder.glob("*.safetensors")}
    assert {inode for inode, *_ in asked} == shards
    assert len(shards) > 1
    assert {tuple(rest) for _, *rest in asked} == {(0, 0, os.POSIX_FADV_WILLNEED)}
