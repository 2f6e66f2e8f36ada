"""A lower bound of a text's number of tokens, from its bytes. To tokenize megabytes would take seconds.

A token has at most as many bytes as the vocabulary's longest one. Vocabularies have long runs of spaces and dashes, but
no long words, so that letters and digits alone give a better bound for most texts; both bounds are computed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.errors import PromptTooLongError
from thothy_ai.engine.text.token_bytes import TokenBytes, steps_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SIGNS = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
_NOT_ASCII = bytes(range(0x80, 0x100))
_SHRINKING = 3  # NFC: nine bytes of Hangul become three; SentencePiece: U+2581 stands for a space
_LOSSLESS = frozenset({"ByteLevel", "Split", "Digits", "Metaspace"})  # pre-tokenizers that drop nothing
_NORMAL_FORMS = frozenset({"NFC", "NFD", "Prepend", "Replace"})


@dataclass(frozen=True, slots=True)
class TokenBound:
    """Maximum bytes per token: of `all` bytes, and of a `word`'s, which are those not in `signs`.

    `rewrites`: the tokenizer may compose characters before it splits them, each of which takes in one letter at most.
    """

    all: int
    word: int
    signs: bytes
    rewrites: bool

    def least_tokens(self, text: str) -> int:
        """A lower bound of the number of tokens of `text`."""
        data = text.encode(errors="surrogatepass")
        words = len(data.translate(None, self.signs))
        if self.rewrites:
            words -= len(text) - len(data.translate(None, _NOT_ASCII))
        return max(-(-len(data) // self.all), -(-words // self.word))

    def check(self, request: GenerationRequest, longest: int) -> None:
        """Raise PromptTooLongError for a prompt that certainly has `longest` tokens or more.

        A chat template is expected to write something for each message, and not to leave out most of its content.
        """
        least = len(request.token_ids) + len(request.messages) + self.least_tokens(request.text or "")
        least += sum(self.least_tokens(message.content) for message in request.messages)
        if least >= longest:
            raise PromptTooLongError(f"the prompt has {least} tokens or more; context and KV pool hold {longest}")


UNBOUNDED = TokenBound(2**62, 2**62, b"", rewrites=False)


def token_bound(tokenizer: Tokenizer, vocabulary: TokenBytes) -> TokenBound:
    """The bound of a tokenizer and its vocabulary; `UNBOUNDED` if its tokens may stand for any number of bytes."""
    state = json.loads(tokenizer.to_str(pretty=False))
    splits = steps_of(state["pre_tokenizer"], "pretokenizers")
    normalizers = steps_of(state["normalizer"], "normalizers")
    replacements = [step for step in normalizers if step["type"] == "Replace"]
    drops_text = (
        not {step["type"] for step in splits} <= _LOSSLESS
        or any(step.get("behavior") == "Removed" for step in splits)
        or not {step["type"] for step in normalizers} <= _NORMAL_FORMS
        or any(step["pattern"] != {"String": " "} or not step["content"] for step in replacements)
        or any(token["lstrip"] or token["rstrip"] for token in state["added_tokens"])
    )
    decodes_bytes = any(step["type"] == "ByteLevel" for step in steps_of(state["decoder"], "decoders"))
    if drops_text or not (decodes_bytes or state["model"].get("byte_fallback")):
        return UNBOUNDED
    rewrites = state["normalizer"] is not None or not decodes_bytes
    signs = _SIGNS + _NOT_ASCII if rewrites else _SIGNS
    # In a prompt a special token stands for its name; `TokenBytes` has what it stands for in an output.
    added = (token.content.encode() for token in tokenizer.get_added_tokens_decoder().values())
    longest, word = 1, 1
    for text in chain(vocabulary.table, added):
        longest, word = max(longest, len(text)), max(word, len(text.translate(None, signs)))
    return TokenBound(longest * _SHRINKING if rewrites else longest, word, signs, rewrites)
