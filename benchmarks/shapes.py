"""Models of a named shape with random weights, drawn on the device: speed depends on shapes, not on what they say."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thothy_ai.engine.loader import LoadedModel
from thothy_ai.engine.model_config import ModelConfig
from thothy_ai.engine.weights.assemble import assemble

SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
    },
}


class RandomWeights:
    """A tensor source that has every tensor: norms of ones, everything else normal with deviation 0.02."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._generator = torch.Generator(device).manual_seed(0)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape."""
        fresh = torch.empty(shape, dtype=self._dtype, device=self._device)
        return fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02, generator=self._generator)


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """The named shape, ready to run; it has no tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(SHAPES[shape]))
        config = ModelConfig.from_folder(Path(folder))
    return LoadedModel(config, assemble(config, RandomWeights(device, dtype)), None, f"{shape} (random weights)")
