"""From a request to prompt tokens: the model's chat template and tokenizer.

Only the template may write special tokens. A message that spells one out (`<|im_end|>` in a source text) is encoded by
a copy of the tokenizer without special tokens, so that it stays text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from thothy_ai.engine.api import GenerationRequest, Message
from thothy_ai.engine.errors import InvalidRequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class PromptEncoder:
    """Turns requests into token ids. Used by one thread."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        self._literals = _literals(self._backend)

    def encode(self, request: GenerationRequest) -> tuple[int, ...]:
        """Prompt tokens; InvalidRequestError for a request without a prompt, or with one that cannot be encoded.

        `text` is a whole prompt: special tokens in it are recognized, and the tokenizer adds its own.
        """
        if sum((bool(request.messages), request.text is not None, bool(request.token_ids))) != 1:
            raise InvalidRequestError("give exactly one of messages, text and token_ids")
        if request.token_ids:
            return request.token_ids
        if request.text is not None:
            _check_unicode(request.text)
            return tuple(token_ids(self._backend, request.text, adds_special=True))
        for message in request.messages:
            _check_unicode(message.role)
            _check_unicode(message.content)
        return self._encode_chat(request)

    def _encode_chat(self, request: GenerationRequest) -> tuple[int, ...]:
        placeholders = _Placeholders()
        messages = [self._escaped(message, placeholders) for message in request.messages]
        rendered = self._render(messages, thinks=request.schema is None)
        tokens: list[int] = []
        for text, is_content in placeholders.pieces(rendered):
            encoder = self._text_only if is_content else self._backend
            tokens += token_ids(encoder, text)
        return tuple(tokens)

    def _escaped(self, message: Message, placeholders: _Placeholders) -> Message:
        """The message itself, or one with a placeholder for content that spells out a special token."""
        if self._literals.search(message.role):
            raise InvalidRequestError("a message's role contains a special token")
        if not self._literals.search(message.content):
            return message
        return Message(message.role, placeholders.replace(message.content))

    def _render(self, messages: Sequence[Message], *, thinks: bool) -> str:
        """Apply the chat template, without thinking if it has that option and a grammar leaves no room for thoughts."""
        if not self._tokenizer.chat_template:
            raise InvalidRequestError("the model has no chat template: send text instead of messages")
        plain = [{"role": message.role, "content": message.content} for message in messages]
        options: dict[str, Any] = {} if thinks else {"enable_thinking": False}
        try:
            rendered = self._tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True, **options)
        except Exception as error:  # a template is a program that comes with the model, and may raise anything
            raise InvalidRequestError(f"the model's chat template refuses these messages: {error}") from error
        return str(rendered)

    @cached_property
    def _text_only(self) -> Tokenizer:
        """The tokenizer without its added tokens."""
        state = json.loads(self._backend.to_str())
        return Tokenizer.from_str(json.dumps(state | {"added_tokens": []}))


class _Placeholders:
    """Unguessable placeholders, which stand for contents while the chat template is rendered."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._contents: list[str] = []

    def replace(self, content: str) -> str:
        self._contents.append(content)
        return f"[{self._nonce}:{len(self._contents) - 1}]"

    def pieces(self, rendered: str) -> list[tuple[str, bool]]:
        """Split a rendered chat into (text, whether it is a replaced content)."""
        parts = re.split(rf"\[{self._nonce}:(\d+)\]", rendered)
        pieces = ((self._contents[int(part)], True) if at % 2 else (part, False) for at, part in enumerate(parts))
        return [piece for piece in pieces if piece[0]]


def _literals(tokenizer: Tokenizer) -> re.Pattern[str]:
    """Matches every added token's text, except tokens of white space only, which are not control tokens."""
    added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
    texts = sorted((text for text in added if text.strip()), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


def token_ids(tokenizer: Tokenizer, text: str, *, adds_special: bool = False) -> list[int]:
    """As `encode`, which holds the GIL meanwhile, and takes as long again to find where in the text each token is."""
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=adds_special)[0].ids
    return ids


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"the prompt is not valid Unicode: a lone surrogate at {error.start}") from error
