"""Models as an engine in one process loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights import loader
from thothy_ai.engine.weights.loader import LoadedModel


def load_model(path: Path, *, text: LocalText | None = None, **how: Any) -> LoadedModel:
    """`loader.load_model`, with a configuration and a tokenizer that this process reads."""
    return loader.load_model(path, text=text or LocalText(), **how)
