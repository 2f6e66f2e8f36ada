"""The text parts of multimodal checkpoints: as transformers computes them, whatever their tensors are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig

from tests.support import tiny_containers
from tests.support.paged_run import PagedRun
from tests.support.tiny_containers import reference_container, tiny_container
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS, text_part
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.loader import LoadedModel, load_model

CPU = torch.device("cpu")
TOKENS = [5, 9, 77, 120, 3, 44, 8]
OURS = [name for name in CONTAINERS if tiny_containers.CONTAINERS[name]["text"] in FAMILIES]


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
@pytest.mark.parametrize("name", OURS)
def test_logits_match(name: str, tmp_path: Path, *, tied: bool) -> None:
    folder = tiny_container(name, tmp_path, tied=tied)
    config = loaded(folder).config
    assert (config.container, config.family) == (name, tiny_containers.CONTAINERS[name]["text"])
    scale = getattr(config.architecture, "logit_scale", 1.0)  # transformers leaves it out in containers
    torch.testing.assert_close(logits(folder), scale * expected(folder), atol=1e-4, rtol=0)


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


def test_a_text_part_that_is_none_of_ours(tmp_path: Path) -> None:
    folder = tiny_container("llava", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] = {"model_type": "opt"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="'opt' is not implemented"):
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


def test_every_container_is_tried() -> None:
    assert set(CONTAINERS) == set(tiny_containers.CONTAINERS)
