"""Configurations as models were published: read at their full context, with transformers' own tensors.

tests/data/published_configs.json has what config.json of each repository says, except for the factors of long rotary
embedding, which are made up: their number is the published one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import expected_tensors, num_parameters

PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "data" / "published_configs.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration(name: str, tmp_path: Path) -> None:
    model = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(model["config"]))
    config = model_config(tmp_path)
    assert config.max_context == model["context"]
    small = config.within(64)
    assert num_parameters(small) == model["parameters"]
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path), dtype=torch.float32)
    shapes = {key: tuple(tensor.shape) for key, tensor in theirs.state_dict().items()}
    if config.tied_embeddings:
        del shapes["lm_head.weight"]
    assert expected_tensors(tmp_path, small) == shapes
