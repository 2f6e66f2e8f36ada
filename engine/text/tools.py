"""What the frontend needs of a model: parts of its tokenizer, without torch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from thothy_ai.engine.api import GenerationRequest, Message
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ModelLoadError
from thothy_ai.engine.text.bounds import token_bound
from thothy_ai.engine.text.frontend import TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import token_bytes
from thothy_ai.engine.text.tokenizer import no_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_PROBES = (GenerationRequest("text", text="."), GenerationRequest("chat", messages=(Message("user", "."),)))


def fast_tokenizer(tokenizer: PreTrainedTokenizerBase | None, name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of model `name`; ModelLoadError if it has none that the engine can use."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise no_tokenizer(name)
    return tokenizer


def text_tools(tokenizer: PreTrainedTokenizerFast, name: str, vocab_size: object = None) -> TextTools:
    """The frontend's parts; `vocab_size` is what the model's configuration says, where it is known.

    UnsupportedModelError, naming model `name`, for a tokenizer of another family, or a template that loses texts;
    ModelLoadError if each prompt would have a token that the model lacks.
    """
    backend = tokenizer.backend_tokenizer
    try:
        prompts, vocabulary = PromptEncoder(tokenizer), token_bytes(backend)
        prompts.template.require_texts()
    except EngineError as error:
        raise type(error)(f"{name}: {error}") from error
    added = tokenizer.added_tokens_decoder
    for probe in _PROBES:
        if not isinstance(vocab_size, int):
            break
        with suppress(InvalidRequestError):  # from a template that wants more than a user's message
            [tokens] = prompts.encode([prompts.write(probe)])
            beyond = () if isinstance(tokens, Exception) else [token for token in tokens if token >= vocab_size]
            if lacking := [added[token].content for token in beyond if token in added]:
                raise ModelLoadError(
                    f"{name}: each {probe.id} prompt has the token {lacking[0]!r}, and the model has no embedding for "
                    f"it: it has {vocab_size:,}, its tokenizer {len(tokenizer):,} tokens"
                )
    return TextTools(prompts, vocabulary, token_bound(backend, vocabulary))
