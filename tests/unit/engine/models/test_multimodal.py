"""The text parts of multimodal checkpoints: as transformers computes them, whatever their tensors are called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from tests.support import tiny_containers
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_containers import reference_container, tiny_container
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS, text_part
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = [5, 9, 77, 120, 3, 44, 8]
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4,
        "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
AROUND = {  # text parts that run through transformers, with fields that they need
    "mistral3": ("arcee", {}),
    "llava": ("opt", {"ffn_dim": 80, "word_embed_proj_dim": 48}),
    "llava_next": ("gpt_neox", {}),
    "idefics3": ("olmo", {}),
    "llava_onevision": ("starcoder2", {}),
    "internvl": ("arcee", {}),
}


def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device=CPU, dtype=torch.float32)


def logits(folder: Path) -> Tensor:
    return PagedRun(loaded(folder).model, 1, 8).step({0: TOKENS})[0]


def expected(folder: Path) -> Tensor:
    with torch.no_grad():
        found: Tensor = reference_container(folder)(input_ids=torch.tensor([TOKENS])).logits[0]
    return found


def rename(folder: Path, before: str, after: str) -> None:
    """Give tensors that begin with one prefix another one; there must be some."""
    tensors = load_file(folder / "model.safetensors")
    assert any(name.startswith(before) for name in tensors), sorted(tensors)[:3]
    named = {
        after + name.removeprefix(before) if name.startswith(before) else name: tensor
        for name, tensor in tensors.items()
    }
    save_file(named, folder / "model.safetensors")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", CONTAINERS)
def test_logits_match(name: str, tmp_path: Path, *, tied: bool) -> None:
    folder = tiny_container(name, tmp_path, tied=tied)
    config = loaded(folder).config
    assert (config.container, config.family) == (name, tiny_containers.CONTAINERS[name]["text"])
    scale = getattr(config.architecture, "logit_scale", 1.0)  # transformers leaves it out in containers
    torch.testing.assert_close(logits(folder), scale * expected(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("text", "fields", "finish"),
    [
        ("granite", {"logits_scaling": 3.0, "embedding_multiplier": 6.0}, lambda x: x / 3),
        ("gemma2", {"final_logit_softcapping": 2.0}, lambda x: 2 * torch.tanh(x / 2)),
        ("cohere", {"logit_scale": 0.7}, lambda x: 0.7 * x),
    ],
)
def test_what_a_text_model_does_to_logits(
    text: str, fields: dict[str, float], finish: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    """transformers' containers leave it out."""
    folder = tiny_container("llava_next", tmp_path, around=text, **fields)
    torch.testing.assert_close(logits(folder), finish(expected(folder)), atol=1e-4, rtol=0)


def test_ministral_3(tmp_path: Path) -> None:
    """Its container is Mistral Small's."""
    folder = tiny_container("mistral3", tmp_path, around="ministral3", rope_parameters=YARN)
    assert loaded(folder).config.family == "ministral3"
    torch.testing.assert_close(logits(folder), expected(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", AROUND)
def test_text_parts_that_run_through_transformers(name: str, tmp_path: Path) -> None:
    text, fields = AROUND[name]
    folder = tiny_container(name, tmp_path, around=text, **fields)
    config = loaded(folder).config
    assert (config.container, config.family) == (name, text)
    torch.testing.assert_close(logits(folder), expected(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop("language_model.model.norm.weight"), r"missing keys: model\.norm\.weight"),
        (lambda tensors: tensors.update({"model.language_model.stray": torch.zeros(2)}), "unexpected keys: .*stray"),
        (lambda tensors: tensors.update({"audio_tower.weight": torch.zeros(2)}), "unexpected keys: audio_tower"),
    ],
)
def test_tensors_of_such_a_text_part_that_do_not_fit(
    change: Callable[[dict[str, Tensor]], object], said: str, tmp_path: Path
) -> None:
    folder = tiny_container("mistral3", tmp_path, around="arcee")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelLoadError, match=said):
        loaded(folder)


@pytest.mark.parametrize("name", ["mistral3", "llava"])
def test_names_as_in_the_model_s_code(name: str, tmp_path: Path) -> None:
    """transformers 5 saves them as the first versions did, others as they are: `model.language_model.layers...`."""
    folder = tiny_container(name, tmp_path)
    before = logits(folder)
    rename(folder, "language_model.model.", "model.language_model.")
    rename(folder, "language_model.lm_head.", "lm_head.")
    rename(folder, "vision_tower.", "model.vision_tower.")
    rename(folder, "multi_modal_projector.", "model.multi_modal_projector.")
    assert torch.equal(logits(folder), before)


def test_a_head_of_its_own_counts_whatever_the_container_says(tmp_path: Path) -> None:
    folder = tiny_container("mistral3", tmp_path)
    before = logits(folder)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    assert torch.equal(logits(folder), before)


def test_a_head_that_only_the_container_ties(tmp_path: Path) -> None:
    folder = tiny_container("mistral3", tmp_path, tied=True)
    before = logits(folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["tie_word_embeddings"] = False
    config["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    assert torch.equal(logits(folder), before)


def test_what_is_neither_text_nor_vision_is_refused(tmp_path: Path) -> None:
    folder = tiny_container("llava", tmp_path)
    rename(folder, "vision_tower.", "audio_tower.")
    with pytest.raises(ModelLoadError, match=r"no place for tensor 'audio_tower\."):
        loaded(folder)


def test_a_tensor_under_both_names(tmp_path: Path) -> None:
    folder = tiny_container("llava", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.language_model.norm.weight"] = tensors["language_model.model.norm.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"'model\.norm\.weight' exists under two names"):
        loaded(folder)


def test_a_text_part_that_is_refused(tmp_path: Path) -> None:
    folder = tiny_container("llava", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] = {"model_type": "mamba"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="'mamba': recurrent state is not implemented"):
        model_config(folder)


def test_quantization_of_the_container_is_that_of_its_text_part(tmp_path: Path) -> None:
    folder = tiny_container("mistral3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "hqq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="hqq"):
        model_config(folder)


def test_layers_that_stay_plain_are_named_as_in_the_text_part() -> None:
    ignored = [
        "language_model.lm_head",
        "re:vision_tower.*",
        "vision_tower",
        "model.language_model.layers.1.mlp.up_proj",
    ]
    config = AutoConfig.for_model("mistral3", quantization_config={"quant_method": "x", "ignore": ignored, "bits": 4})
    text = text_part(config).quantization_config
    names = ["lm_head", "re:vision_tower.*", "model.layers.1.mlp.up_proj"]
    assert text == {"quant_method": "x", "ignore": names, "bits": 4}
    assert config.quantization_config["ignore"] == ignored


_W8A8 = {"weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
         "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}}  # fmt: skip
_PREFIXED = {  # a configuration's rules, and a layer that is plain by them, in names of the container
    "a pattern": {"ignore": ["re:.*language_model.*self_attn.*"]},
    "a pattern of the code": {"ignore": ["re:model.language_model.layers.\\d+.self_attn.*"]},
    "a pattern from the beginning": {"ignore": ["re:language_model\\.model\\.layers\\..*\\.self_attn\\..*_proj"]},
    "names": {"ignore": [f"language_model.model.layers.{layer}.self_attn.q_proj" for layer in range(3)]},
    "a target by pattern": {"targets": ["re:.*language_model.*mlp.*"]},
    "a target by name": {"targets": ["language_model.model.layers.2.mlp.up_proj"]},
}


@pytest.mark.parametrize("rule", _PREFIXED)
def test_rules_of_quantization_in_the_container_s_names(rule: str, tmp_path: Path) -> None:
    folder = tiny_container("mistral3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    group = _W8A8 | {"targets": _PREFIXED[rule].get("targets", ["Linear"])}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*vision_tower.*", *_PREFIXED[rule].get("ignore", [])],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    found = model_config(folder).quantization
    assert found is not None
    assert found.layout("model.layers.2.self_attn.q_proj") is None
    assert found.layout("model.layers.2.mlp.up_proj") is not None
    assert found.layout("lm_head") is None


def test_every_container_is_tried() -> None:
    assert set(CONTAINERS) == set(tiny_containers.CONTAINERS)
