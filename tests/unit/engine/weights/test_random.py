"""A folder that asks for random weights gets them, and its name says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.loading import load_model
from tests.support.small_tokenizer import write_tokenizer
from thothy_ai.bench.models import random_folder
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.random import MARKER, RandomWeights

CPU = torch.device("cpu")


def test_a_marked_folder_has_random_weights_of_its_shapes(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    folder = tmp_path / "tiny"
    folder.mkdir()
    text = LocalText()
    loaded = load_model(random_folder("tiny", tokenizer, folder), device=CPU, dtype=torch.float32, text=text)
    assert loaded.name == "tiny (random weights)"
    assert text.loaded is not None
    assert loaded.tokenizer is not None
    assert loaded.config.vocab_size == len(text.loaded)
    assert loaded.config.eos_token_ids == (loaded.tokenizer.eos_token_id,) == (text.loaded.eos_token_id,)


def test_without_the_marker_weights_are_missing(tmp_path: Path) -> None:
    random_folder("tiny", write_tokenizer(tmp_path / "tokenizer"), tmp_path)
    (tmp_path / MARKER).unlink()
    with pytest.raises(ModelLoadError, match=r"no model\.safetensors"):
        load_model(tmp_path, device=CPU, dtype=torch.float32)


def test_norms_are_ones_and_other_tensors_small_normal_numbers() -> None:
    drawn: list[int] = []
    source = RandomWeights(CPU, torch.float32, drawn.append)
    assert source.tensor("model.norm.weight", 8).tolist() == [1.0] * 8
    weight = source.weight("lm_head.weight", 100, 100)
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(weight.mean().item()) < 1e-3
    assert drawn == [0, 32]
