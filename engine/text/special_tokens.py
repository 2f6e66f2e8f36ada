"""Special tokens in texts: marks around those that a chat template wrote, and a tokenizer that sees no others.

The marks cannot be guessed. The tokenizer is a copy in which the marks are part of each added token's name, so that the
same name in a message is text, and everything else about encoding (spaces that a token swallows, normalization, the
beginning of a text) is as it was.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer

from thothy_ai.engine.api.errors import InvalidRequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class SpecialTokens:
    """The names of a tokenizer's added tokens, except white space, which is not a control token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        nonce = secrets.token_hex(8)
        self._open, self._close = f"<{nonce}:", f":{nonce}>"
        added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
        names = sorted((name for name in added if name.strip()), key=len, reverse=True)
        name = "|".join(map(re.escape, names)) or r"(?!)"
        self._name = re.compile(name)
        self._marked = re.compile(f"{self._open}({name}){self._close}")

    def in_text(self, text: str) -> bool:
        """Whether a text has a special token, marked or not."""
        return self._name.search(text) is not None

    def unmarked_in(self, text: str) -> bool:
        """Whether a text has a special token without marks around it."""
        return self.in_text(self._marked.sub("\0", text))

    def mark(self, text: str) -> str:
        return self._name.sub(lambda found: f"{self._open}{found[0]}{self._close}", text)

    def unmark(self, text: str) -> str:
        return self._marked.sub(lambda found: found[1], text)

    def fill(self, text: str, filler: str) -> str:
        """The text with fillers instead of each character of a special token."""
        return self._name.sub(lambda found: filler * len(found[0]), text)

    def mark_as_in(self, filled: str, text: str) -> str:
        """`text`, as long as `filled`, with marks where `filled` has special tokens."""
        pieces, end = [], 0
        for found in self._name.finditer(filled):
            begin, after = found.span()
            pieces += [text[end:begin], self._open, text[begin:after], self._close]
            end = after
        return "".join((*pieces, text[end:]))


class MarkedTokenizer:
    """Encodes texts in which only special tokens with marks are special."""

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens) -> None:
        added = tokenizer.get_added_tokens_decoder()
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        self._tokenizer = Tokenizer(tokenizer.model)  # parts are shared: a large vocabulary takes seconds to copy
        if tokenizer.normalizer is not None:
            self._tokenizer.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            self._tokenizer.pre_tokenizer = tokenizer.pre_tokenizer
        marked = [
            AddedToken(
                special.mark(token.content),
                single_word=token.single_word,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=token.normalized,
                special=token.special,
            )
            for token in added.values()
        ]
        self._tokenizer.add_tokens(marked)
        ids = {self._tokenizer.token_to_id(special.mark(token.content)): id_ for id_, token in added.items()}
        self._ids = {ours: theirs for ours, theirs in ids.items() if ours is not None and ours != theirs}
        self._control = {vocabulary[t.content] for t in added.values() if t.content.strip() and t.content in vocabulary}

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids; InvalidRequestError if the vocabulary itself has a special token that a text has unmarked."""
        encoded = token_ids(self._tokenizer, texts, adds_special=False)
        if not all(map(self._control.isdisjoint, encoded)):
            says = "a message contains a special token, which this tokenizer cannot encode as text"
            raise InvalidRequestError(says, "messages")
        return [tuple(self._ids.get(token, token) for token in tokens) for tokens in encoded]


def unlimited(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """The tokenizer's backend, which neither pads nor truncates from now on."""
    backend: Tokenizer = tokenizer.backend_tokenizer  # no copy, which takes as long as to load it again
    backend.no_padding()
    backend.no_truncation()
    return backend


def token_ids(tokenizer: Tokenizer, texts: Sequence[str], *, adds_special: bool) -> list[tuple[int, ...]]:
    # `encode` would hold the GIL, and find each token's place in the text.
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=adds_special)
    return [tuple(encoding.ids) for encoding in encodings]
