"""What becomes of a model's files: logits, or an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.text.tools import fast_tokenizer, text_tools
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
TOKENS = [5, 9, 1, 7, 7, 30]
TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8, "intermediate_size": 32}
INF, NAN = float("inf"), float("nan")


def load(path: Path, cache: Path) -> LoadedModel:
    text = LocalText()
    loaded = load_model(path, device=CPU, dtype=torch.float32, cache_dir=cache, max_context=4096, text=text)
    text_tools(fast_tokenizer(text.loaded, loaded.name), loaded.name, loaded.config.vocab_size)
    return loaded


def outcome(path: Path, cache: Path) -> torch.Tensor | str | None:
    """Logits of a model that loads, None if its context is too short for any; otherwise its error."""
    try:
        loaded = load(path, cache)
    except ModelLoadError as error:
        text = str(error)
        assert "\n" not in text
        assert len(text) < 1500
        assert path.stem in text
        return text
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if loaded.config.max_context < len(TOKENS):
        return None
    return PagedRun(loaded.model, 1, 32).step({0: TOKENS})[0]
