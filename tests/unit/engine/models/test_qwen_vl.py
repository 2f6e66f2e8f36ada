"""The text parts of Qwen-VL: positions on three axes, experts stored transposed, names of several generations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.loading import load_model
from tests.support.oracle import NEW_TOKENS, Oracle, continued, options, random_prompts
from tests.support.paged_run import PagedRun
from tests.support.tiny_containers import reference_container, tiny_container
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(3)).tolist()
ALL = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16}
EXPERTS = ("experts.gate_up_proj", "experts.down_proj")
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {  # config.json as it is published, and the text part's parameters
    "Qwen2.5-VL-7B-Instruct": (
        {
            "model_type": "qwen2_5_vl", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
            "max_position_embeddings": 128000, "max_window_layers": 28, "num_attention_heads": 28,
            "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
            "sliding_window": 32768, "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
            "vision_config": {"depth": 32, "hidden_size": 1280, "out_hidden_size": 3584},
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "eos_token_id": 151645,
        },
        7_615_616_512,
    ),
    "Qwen3-VL-30B-A3B-Instruct": (
        {
            "model_type": "qwen3_vl_moe", "tie_word_embeddings": False, "vision_config": {"model_type": "qwen3_vl_moe"},
            "text_config": {
                "model_type": "qwen3_vl_moe_text", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
                "max_position_embeddings": 262144, "mlp_only_layers": [], "moe_intermediate_size": 768,
                "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
                "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 5000000,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
                "vocab_size": 151936, "eos_token_id": 151645,
            },
        },
        30_532_122_624,
    ),
}  # fmt: skip


def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device=CPU, dtype=torch.float32)


def logits(folder: Path) -> Tensor:
    return PagedRun(loaded(folder).model, 1, 48).step({0: TOKENS})[0]


def expected(folder: Path) -> Tensor:
    with torch.no_grad():
        found: Tensor = reference_container(folder)(input_ids=torch.tensor([TOKENS])).logits[0]
    return found


def rewrite(folder: Path, change: Callable[[str, Tensor], tuple[str, Tensor]]) -> None:
    tensors = dict(change(name, tensor) for name, tensor in load_file(folder / "model.safetensors").items())
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def configure(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config["text_config"])
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ALL)
def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = tiny_container(name, tmp_path)
    prompts = random_prompts(131)
    oracle = Oracle(loaded(folder), prompts, continued(reference_container(folder), prompts, NEW_TOKENS))
    oracle.check(options(preempted=True, chunked=True, overlap=True, prefix_cache=True))


@pytest.mark.parametrize("name", ALL)
def test_a_context_that_yarn_extends(name: str, tmp_path: Path) -> None:
    sections = [2, 1, 1] if name.startswith("qwen2") else [4, 2, 2]
    folder = tiny_container(name, tmp_path, rope_parameters=YARN | {"mrope_section": sections})
    torch.testing.assert_close(logits(folder), expected(folder), atol=1e-4, rtol=0)


def test_layers_with_a_window(tmp_path: Path) -> None:
    folder = tiny_container("qwen2_5_vl", tmp_path, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert loaded(folder).config.architecture.windows == (None, 8, 8)
    torch.testing.assert_close(logits(folder), expected(folder), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ALL)
def test_names_of_all_generations(name: str, tmp_path: Path) -> None:
    """`model.layers` beside `visual`, and `model.language_model.layers` beside either form of it."""
    folder = tiny_container(name, tmp_path)
    before = logits(folder)

    def older(each: str) -> str:
        return each.replace("model.language_model.", "model.").replace("model.visual.", "visual.")

    for rename in (older, lambda each: each.replace("model.", "model.language_model.")):
        rewrite(folder, lambda each, tensor, rename=rename: (rename(each), tensor))  # type: ignore[misc]
        assert torch.equal(logits(folder), before)


def test_experts_as_published_are_transposed(tmp_path: Path) -> None:
    folder = tiny_container("qwen3_vl_moe", tmp_path)
    before = logits(folder)

    def transposed(name: str, tensor: Tensor) -> tuple[str, Tensor]:
        return name, tensor.transpose(1, 2).contiguous() if name.endswith(EXPERTS) else tensor

    rewrite(folder, transposed)
    torch.testing.assert_close(expected(folder), before, atol=1e-4, rtol=0)  # transformers reads both forms, too
    assert torch.equal(logits(folder), before)


def test_square_experts_are_told_apart_by_the_other_projection(tmp_path: Path) -> None:
    folder = tiny_container("qwen3_vl_moe", tmp_path, moe_intermediate_size=24)  # gate and up [48, 48]
    before = logits(folder)
    rewrite(folder, lambda name, each: (name, each.transpose(1, 2).contiguous() if name.endswith(EXPERTS) else each))
    assert torch.equal(logits(folder), before)


def test_experts_of_which_only_one_projection_is_transposed(tmp_path: Path) -> None:
    folder = tiny_container("qwen3_vl_moe", tmp_path)
    rewrite(folder, lambda name, each: (name, each.mT.contiguous() if name.endswith("gate_up_proj") else each))
    with pytest.raises(ModelLoadError, match=r"gate_up_proj' has shape \(6, 48, 64\), the configuration wants"):
        loaded(folder)


@pytest.mark.parametrize("name", ALL)
def test_the_older_word_for_sections(name: str, tmp_path: Path) -> None:
    folder = tiny_container(name, tmp_path)
    before = logits(folder)
    sections = [2, 1, 1] if name.startswith("qwen2") else [4, 2, 2]
    older = {"type": "mrope", "mrope_section": sections}
    configure(folder, lambda text: text.update(rope_scaling=older, rope_theta=1000.0, rope_parameters=None))
    assert torch.equal(logits(folder), before)


@pytest.mark.parametrize("sections", [[2, 1], [2, 1, 2], [5, -1, 0], "three", [2.0, 1, 1], 4])
def test_sections_that_heads_do_not_have(sections: object, tmp_path: Path) -> None:
    folder = tiny_container("qwen2_vl", tmp_path)
    configure(folder, lambda text: text["rope_parameters"].update(mrope_section=sections))
    with pytest.raises(ModelLoadError, match="mrope_section"):
        model_config(folder)


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [("su", UnsupportedModelError, "'su'"), ("linear", ModelLoadError, "factor")],
)
def test_other_rotary_embedding(kind: str, error: type[Exception], says: str, tmp_path: Path) -> None:
    folder = tiny_container("qwen3_vl", tmp_path)
    configure(folder, lambda text: text["rope_parameters"].update(rope_type=kind))
    with pytest.raises(error, match=says):
        model_config(folder)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations(name: str, tmp_path: Path) -> None:
    config, parameters = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = model_config(tmp_path)
    text = config.get("text_config", config)
    assert (found.max_context, found.layer_groups.windows) == (text["max_position_embeddings"], (None,))
    assert found.rope.inverse_frequencies[1] == pytest.approx(text["rope_theta"] ** (-1 / 64))
    assert (num_parameters(found.within(64)), found.eos_token_ids) == (parameters, (151645,))
