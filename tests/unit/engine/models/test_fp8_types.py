"""fp8 weights of models in 16 bits, against what the weights stand for; tests/gpu has the same on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.dequantized import check_fp8_weights
from tests.support.tiny_models import FAMILIES, tiny_model


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    check_fp8_weights(tiny_model(family, tmp_path, initializer_range=0.08), torch.device("cpu"), dtype)
