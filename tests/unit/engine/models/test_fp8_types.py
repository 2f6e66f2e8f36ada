"""fp8 weights of models in 16 bits, against what the weights stand for; tests/gpu has the same on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.dequantized import check_fp8_weights
from tests.support.loading import load_model
from tests.support.tiny_models import FAMILIES, tiny_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    check_fp8_weights(tiny_model(family, tmp_path, initializer_range=0.08), CPU, dtype)


def test_a_delta_net_with_an_output_projection_of_fp8(tmp_path: Path) -> None:
    """Both of its sizes are multiples of 16, as in all published models."""
    folder = tiny_model("qwen3_5_text", tmp_path, initializer_range=0.08, linear_num_value_heads=8)
    check_fp8_weights(folder, CPU, torch.bfloat16)
    layer = load_model(folder, device=CPU, dtype=torch.bfloat16, weights="fp8").model.decoder.layers[0]  # type: ignore[attr-defined]
    assert layer.attention.output.takes_fp8
