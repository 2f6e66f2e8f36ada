"""What the text edge needs of a model: parts of its tokenizer, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.engine.errors import ModelLoadError
from thothy_ai.engine.process.imports import transformers_without_torch
from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.frontend import TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import token_bytes
from thothy_ai.engine.weights.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def fast_tokenizer(tokenizer: PreTrainedTokenizerBase | None, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of model `name`; ModelLoadError if it has none that the engine can use."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelLoadError(f"{name} has no tokenizer.json, nor a file from which one can be made")
    return tokenizer


def text_tools(tokenizer: PreTrainedTokenizerFast) -> TextTools:
    """The frontend's parts; UnsupportedModelError for a tokenizer of another family."""
    backend = tokenizer.backend_tokenizer
    return TextTools(PromptEncoder(tokenizer), token_bytes(backend), token_bound(backend))


def load_text_tools(folder: Path) -> TextTools:
    """The frontend's parts, of a model's folder; for a process that needs no torch."""
    with transformers_without_torch():
        return text_tools(fast_tokenizer(load_tokenizer(folder), folder.name))
