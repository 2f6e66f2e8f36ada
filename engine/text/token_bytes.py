"""The bytes of each token, so that text can be assembled without the tokenizer.

Two families write tokens as text: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM) maps each byte to a printable
character; SentencePiece (Llama 2, Mistral) writes a space as U+2581 and a lone byte as <0x0A>.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api.errors import UnsupportedModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE_MARK = "\u2581"
# GPT-2's alphabet: printable Latin-1 bytes are their own characters, the other bytes are U+0100 and up, in order.
_PRINTABLE = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = {chr(byte): bytes([byte]) for byte in _PRINTABLE} | {
    chr(256 + index): bytes([byte]) for index, byte in enumerate(_OTHERS)
}
_NOT_LATIN_1 = "\ufffe"
_LATIN_1 = {ord(character): chr(data[0]) for character, data in _BYTE_OF.items()} | dict.fromkeys(_OTHERS, _NOT_LATIN_1)


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """`table[token]` is empty for special tokens and for gaps in the vocabulary.

    `drops_first_space`: the tokenizer puts a space before a text, which decoding removes again.
    """

    table: tuple[bytes, ...]
    drops_first_space: bool

    def of(self, tokens: Iterable[int]) -> bytes:
        """The bytes of consecutive tokens; ids beyond the vocabulary have none."""
        table = self.table
        return b"".join(table[token] for token in tokens if token < len(table))


def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """Read a tokenizer's vocabulary; UnsupportedModelError if it belongs to neither family."""
    state = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else None
    steps = steps_of(state, "decoders")
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        read, drops = _byte_level, False
    elif kinds & {"Metaspace", "ByteFallback"}:
        strips = any(step["type"] == "Strip" and step["content"] == " " and step["start"] > 0 for step in steps)
        prepends = any(step["type"] == "Metaspace" and step["prepend_scheme"] != "never" for step in steps)
        read, drops = _sentence_piece, strips or prepends
    else:
        raise UnsupportedModelError(f"unsupported tokenizer; its decoder: {', '.join(sorted(kinds)) or 'none'}")
    table = {id_: read(token) for token, id_ in tokenizer.get_vocab(with_added_tokens=False).items()}
    for id_, added in tokenizer.get_added_tokens_decoder().items():
        table[id_] = b"" if added.special else added.content.encode()
    return TokenBytes(tuple(table.get(id_, b"") for id_ in range(max(table, default=-1) + 1)), drops)


def steps_of(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """The steps of a part of a tokenizer.json, which may be a sequence of them under `name`, or be absent."""
    if part is None:
        return []
    return list(part[name]) if part["type"] == "Sequence" else [part]


def _byte_level(token: str) -> bytes:
    try:
        return token.translate(_LATIN_1).encode("latin-1")
    except UnicodeEncodeError:  # it has characters beyond the alphabet
        return b"".join(_BYTE_OF.get(character, character.encode()) for character in token)


def _sentence_piece(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(_SPACE_MARK, " ").encode()
