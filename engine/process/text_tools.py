"""What the frontend needs of a model: parts of its tokenizer, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.frontend import TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import token_bytes
from thothy_ai.engine.weights.tokenizer import no_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


def fast_tokenizer(tokenizer: PreTrainedTokenizerBase | None, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of model `name`; ModelLoadError if it has none that the engine can use."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise no_tokenizer(name)
    return tokenizer


def text_tools(tokenizer: PreTrainedTokenizerFast) -> TextTools:
    """The frontend's parts; UnsupportedModelError for a tokenizer of another family."""
    backend = tokenizer.backend_tokenizer
    vocabulary = token_bytes(backend)
    return TextTools(PromptEncoder(tokenizer), vocabulary, token_bound(backend, vocabulary))
