"""How few tokens a text can have, by its bytes: far quicker than tokenizing it, which takes seconds for megabytes.

A token stands for at most as many bytes as the vocabulary's longest one. Vocabularies have long runs of spaces and
dashes, but no long words, so that letters and digits alone give a better bound for most texts; both are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.errors import PromptTooLongError
from thothy_ai.engine.text.token_bytes import TokenBytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SIGNS = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
_NOT_ASCII = bytes(range(0x80, 0x100))
_SHRINKING = 3  # NFC: nine bytes of Hangul become three; SentencePiece: U+2581 stands for a space
_LOSSLESS = frozenset({"ByteLevel", "Split", "Digits", "Metaspace"})  # pre-tokenizers that drop nothing
_NORMAL_FORMS = frozenset({"NFC", "NFD", "Prepend", "Replace"})


@dataclass(frozen=True, slots=True)
class TokenBound:
    """Bytes per token, at most. `word`: of those that are not in `signs`.

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
        """Refuse a prompt that must have `longest` tokens or more (PromptTooLongError); any other may have them.

        A chat template is expected to write something for each message, and not to leave out most of what they say.
        """
        least = len(request.token_ids) + len(request.messages) + self.least_tokens(request.text or "")
        least += sum(self.least_tokens(message.content) for message in request.messages)
        if least >= longest:
            raise PromptTooLongError(f"the prompt has {least} tokens or more; context and KV pool hold {longest}")


UNBOUNDED = TokenBound(2**62, 2**62, b"", rewrites=False)


def token_bound(tokenizer: Tokenizer, vocabulary: TokenBytes) -> TokenBound:
    """The bound of a tokenizer and its vocabulary; `UNBOUNDED` if its tokens may stand for any number of bytes."""
    state = json.loads(tokenizer.to_str(pretty=False))
    if _drops_text(state):
        return UNBOUNDED
    rewrites = state["normalizer"] is not None or "ByteLevel" not in _kinds(state["decoder"])
    signs = _SIGNS + _NOT_ASCII if rewrites else _SIGNS
    texts = _texts(tokenizer, vocabulary)
    longest, word = 1, 1
    for text in texts:
        longest, word = max(longest, len(text)), max(word, len(text.translate(None, signs)))
    return TokenBound(longest * _SHRINKING if rewrites else longest, word, signs, rewrites)


def _texts(tokenizer: Tokenizer, vocabulary: TokenBytes) -> Iterable[bytes]:
    """What each token stands for in a prompt; for special tokens, `TokenBytes` has what they stand for in an output."""
    yield from vocabulary.table
    for added in tokenizer.get_added_tokens_decoder().values():
        yield added.content.encode()


def _drops_text(state: dict[str, Any]) -> bool:
    """Whether text may vanish: stripped by a normalizer or around a token, or into a token for whatever is unknown."""
    splits = _steps(state["pre_tokenizer"], "pretokenizers")
    return (
        not {step["type"] for step in splits} <= _LOSSLESS
        or any(step.get("behavior") == "Removed" for step in splits)
        or not all(_keeps(step) for step in _steps(state["normalizer"], "normalizers"))
        or any(token["lstrip"] or token["rstrip"] for token in state["added_tokens"])
        or not ("ByteLevel" in _kinds(state["decoder"]) or state["model"].get("byte_fallback"))
    )


def _keeps(normalizer: dict[str, Any]) -> bool:
    if normalizer["type"] == "Replace":
        return bool(normalizer["pattern"] == {"String": " "} and normalizer["content"])
    return normalizer["type"] in _NORMAL_FORMS


def _kinds(decoder: dict[str, Any] | None) -> set[str]:
    return {step["type"] for step in _steps(decoder, "decoders")}


def _steps(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    return list(part[name]) if part["type"] == "Sequence" else [part]
