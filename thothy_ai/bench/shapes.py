"""Named shapes of models, as in their config.json. Speed depends on the shapes, not on the values of the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": {
        "architectures": ["LlamaForCausalLM"],
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
        "architectures": ["Qwen3ForCausalLM"],
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
    "tiny": {  # for tests, and for trying the benchmark on a CPU
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
    },
}


def write_config(shape: str, folder: Path) -> Path:
    """Write the shape's config.json to `folder`, and return that."""
    (folder / "config.json").write_text(json.dumps(SHAPES[shape]), encoding="utf-8")
    return folder
