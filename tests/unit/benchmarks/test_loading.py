"""The loader's benchmark compares it with tensors that are read one by one, whatever a model asks its source for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import loading
from tests.support.tiny_models import tiny_model


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "qwen3_5_text", "deepseek_v2"])
def test_models_are_assembled_from_tensors_read_one_by_one(family: str, tmp_path: Path) -> None:
    loading.by_the_library(tiny_model(family, tmp_path), torch.device("cpu"), torch.float32)
