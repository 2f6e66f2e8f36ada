"""What the text edge needs of a model: parts of its tokenizer, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thothy_ai.engine.configuration import FolderConfiguration
from thothy_ai.engine.errors import ModelLoadError
from thothy_ai.engine.grammar_tokens import JsonTokens
from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.frontend import TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import TokenBytes, token_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_MARKER = b"\xff"  # no text has it; with it llguidance marks special tokens


def fast_tokenizer(tokenizer: PreTrainedTokenizerBase | None, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of model `name`; ModelLoadError if it has none that the engine can use."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise no_tokenizer(name)
    return tokenizer


def no_tokenizer(name: str) -> ModelLoadError:
    """What to raise for a model without one."""
    return ModelLoadError(f"{name} has no tokenizer.json, nor a file from which one can be made")


def text_tools(tokenizer: PreTrainedTokenizerFast) -> TextTools:
    """The frontend's parts; UnsupportedModelError for a tokenizer of another family."""
    backend = tokenizer.backend_tokenizer
    vocabulary = token_bytes(backend)
    return TextTools(PromptEncoder(tokenizer), vocabulary, token_bound(backend, vocabulary))


def json_tokens(vocabulary: TokenBytes, configuration: FolderConfiguration) -> JsonTokens | None:
    """What the core's grammars look up, with all sets computed; None if the size of the logits cannot be right.

    The logits may have more tokens than the vocabulary, but hardly twice as many.
    """
    size = getattr(configuration.text, "vocab_size", None)
    if not isinstance(size, int) or not 0 < size <= 2 * len(vocabulary.table):
        return None
    table = [b"" if data.startswith(_MARKER) else data for data in vocabulary.table[:size]]
    tokens = JsonTokens([*table, *[b""] * (size - len(table))])
    tokens.prepare()
    return tokens
