"""Small random models with quantized weights, as they are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.checkpoints import Scheme, write_quantized
from tests.support.tiny_models import tiny_model

_SIZES: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 160, "tie_word_embeddings": False}


def quantized_model(scheme: Scheme, tmp_path: Path, family: str = "llama", only: str = "", **overrides: Any) -> Path:
    """A folder with a model of the family, of whose layers those with `only` in their names are quantized.

    The plain one lies beside it. `overrides` change its configuration.
    """
    plain = tiny_model(family, tmp_path, **(_SIZES | overrides))
    return write_quantized(plain, tmp_path / "quantized", scheme, only)
